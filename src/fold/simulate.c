/*
 * Lives through steps with the caching allocator at hand: the first one makes
 * the optimizer's states, so that they lie where activations were; the later
 * ones find what it left. Owns when to stop: what is alive, where it lies and
 * what is reserved decide all that follows, so that a state that comes again
 * ends the search. Knows no rule of the allocator.
 */
#include "fold/simulate.h"

#include "fold/trace_private.h"

#include "base/banned.h"

/* As many steps as it takes; nearly always three. */
enum { STEPS_MAX = 12 };

/* The state after a backward, one for each micro-batch that may be in
 * flight. */
struct mark {
    uint64_t hash, backward;
    uint64_t before, before_backward; /* of the step before */
};

struct simulation {
    struct allocator allocator;
    struct simulated *out;
    struct mark *mark;        /* [ring] */
    bool round, round_before; /* a state of this step, of the one before, came
                                 again */
    uint64_t births, births_most;
    bool starting;  /* no moment of a step */
    unsigned steps; /* 0: as many as it takes */
    uint64_t pool_now[SIM_POOLS];
};

/* ---- events ---- */

static enum sim_pool pool_of(const struct hold *h, uint64_t bytes)
{
    const bool small = bytes <= ALLOCATOR_SMALL_REQUEST;
    switch (h->stream) {
    case STREAM_COMPUTE: return small ? SIM_SMALL : SIM_LARGE;
    case STREAM_GATHER: return small ? SIM_GATHER_SMALL : SIM_GATHER_LARGE;
    case STREAM_REDUCE:
    case STREAM_COUNT: break;
    }
    return small ? SIM_REDUCE_SMALL : SIM_REDUCE_LARGE;
}

static void note_peak(struct tracer *r, const struct hold *h)
{
    struct simulation *m = r->sim;
    struct simulated *out = m->out;
    const enum sim_pool pool = pool_of(h, h->bytes);
    m->pool_now[pool] += h->block->size;
    if (m->pool_now[pool] > out->pool[pool].allocated)
        out->pool[pool].allocated = m->pool_now[pool];
    if (m->starting || m->allocator.allocated.now <= out->allocated)
        return;
    out->allocated = m->allocator.allocated.now;
    out->phase = r->phase;
    out->position = r->position;
    out->later = r->later;
}

void simulate_birth(struct tracer *r, struct hold *h)
{
    struct simulation *m = r->sim;
    switch (allocator_malloc(&m->allocator, &h->block, h->bytes,
                             (uint32_t)h->stream)) {
    case ALLOCATOR_OK: note_peak(r, h); break;
    case ALLOCATOR_OOM: m->out->oom = true; break;
    case ALLOCATOR_NOMEM: r->failed = true; break;
    }
    if (++m->births == m->births_most)
        r->failed = true;
}

void simulate_death(struct tracer *r, struct hold *h)
{
    struct simulation *m = r->sim;
    if (h->block == NULL)
        return;
    m->pool_now[pool_of(h, h->bytes)] -= h->block->size;
    allocator_free(&m->allocator, h->block);
}

/* ---- states ---- */

/* splitmix64's finalizer */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t mix_hold(const struct tracer *r, uint64_t hash, hold_id id)
{
    const struct hold *h = &r->hold[id];
    if (id == NO_HOLD || h->block == NULL)
        return mix(hash + 1);
    return mix(hash + h->block->address + (h->block->size << 1));
}

/* What is alive and where; free memory is the rest of the segments. */
static uint64_t state_hash(const struct tracer *r)
{
    const struct allocator *a = &r->sim->allocator;
    uint64_t hash = mix(a->reserved.now + a->device_allocs);
    const size_t cells = (size_t)r->ring * r->s->n;
    for (size_t i = 0; i < cells; i++)
        hash = mix_hold(r, hash, r->resident[i].checkpoint);
    for (size_t i = 0; i < cells * r->slots; i++)
        if (r->resident[0].slot[i] != NO_HOLD)
            hash = mix_hold(r, hash + i, r->resident[0].slot[i]);
    for (uint32_t l = 0; l < r->n_levels; l++)
        for (size_t i = 0; i < r->level[l].n; i++)
            hash = mix_hold(r, hash + l, r->level[l].piece[i]);
    return hash;
}

uint64_t simulate_skip(struct tracer *r, uint64_t backward, uint64_t left)
{
    struct mark *k = &r->sim->mark[backward % r->period];
    if (r->sim->steps != 0)
        return 0;
    const uint64_t hash = state_hash(r);
    if (k->before == hash
        && (r->sim->round_before || k->before_backward == backward)) {
        r->settled = true;
        return left;
    }
    if (k->hash == hash) {
        r->sim->round = true;
        return left / r->period * r->period;
    }
    k->hash = hash;
    k->backward = backward;
    return 0;
}

/* The marks of the step before: in it, or in what it repeats, all that comes
 * after one of them is known. */
static void next_step(struct simulation *m, uint32_t period)
{
    for (uint32_t k = 0; k < period; k++)
        m->mark[k] = (struct mark){ .before = m->mark[k].hash,
                                    .before_backward = m->mark[k].backward };
    m->round_before = m->round;
    m->round = false;
}

/* ---- the steps ---- */

static void live(struct tracer *r)
{
    struct simulation *m = r->sim;
    struct simulated *out = m->out;
    const unsigned most = m->steps == 0 ? STEPS_MAX : m->steps;
    uint64_t before = 0;
    m->starting = true;
    trace_start(r);
    m->starting = false;
    for (unsigned i = 0; i < most; i++) {
        next_step(m, r->period);
        tracer_step(r, i == 0 ? TRACE_FIRST : TRACE_LATER);
        if (r->failed || r->settled)
            return;
        out->steps = i + 1;
        out->steady = m->allocator.allocated.now;
        const uint64_t hash = state_hash(r);
        if (m->steps == 0 && i > 0 && hash == before)
            return;
        before = hash;
    }
}

static void count_pools(struct simulated *out, const struct allocator *a)
{
    for (const struct allocator_segment *s = a->first; s != NULL; s = s->next) {
        const struct hold like = { .stream = (enum stream)s->stream };
        const enum sim_pool pool =
            pool_of(&like, s->small ? ALLOCATOR_SMALL_REQUEST : UINT64_MAX);
        out->pool[pool].reserved += s->mapped;
        out->pool[pool].segments++;
    }
}

bool simulate_stage(struct simulated *out, struct memory_fold *f,
                    const struct stage *s, const struct simulate_limits *most)
{
    *out = (struct simulated){ .allocated = 0 };
    struct tracer *r = ARENA_NEW(most->a, struct tracer, 1);
    struct simulation *m = ARENA_NEW(most->a, struct simulation, 1);
    if (r == NULL || m == NULL)
        return false;
    *r = (struct tracer){ .a = most->a, .f = f, .s = s, .sim = m };
    m->out = out;
    m->births_most = most->births;
    m->steps = most->steps;
    const struct allocator_config config = { .expandable = s->run->allocator
                                                           == ALLOC_EXPANDABLE,
                                             .capacity = most->device_bytes };
    allocator_init(&m->allocator, &config, most->a);
    if (!tracer_init(r))
        return false;
    m->mark = ARENA_NEW(most->a, struct mark, r->period);
    if (m->mark == NULL)
        return false;
    live(r);
    out->births = m->births;
    if (r->failed)
        return m->births == m->births_most;
    out->done = true;
    out->reserved = m->allocator.reserved.peak;
    out->retries = m->allocator.retries;
    count_pools(out, &m->allocator);
    return true;
}
