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
/* Outputs that outlive a step lie in other places in the next one, and may do
 * so in turns: as many steps without another peak end it. */
enum { STEPS_QUIET = 3 };

/* The state after so many backwards (interleaved: groups of them). */
struct mark {
    uint64_t hash, backward;
    uint64_t peaks; /* what has been allocated, and reserved, at most */
};
/* Tensors of one size may change places for thousands of micro-batches without
 * anything else changing: once that has taken so many allocations in a step, so
 * many in a row without another peak end it. */
enum { QUIET_BIRTHS = 50000, MARKS_QUIET = 24, MARKS_MAX = 512 };

/* Those of one step; where one came again, the first and last of them. */
struct marks {
    struct mark v[MARKS_MAX];
    uint32_t n, cycle; /* index of the first in it */
    uint64_t period;   /* 0: none came again */
};

struct simulation {
    struct allocator allocator;
    struct simulated *out;
    struct marks now, before; /* of this step, of the one before */
    uint64_t births, births_most;
    uint64_t births_before; /* this step */
    uint64_t waiting;       /* released, still another stream's */
    bool starting;          /* no moment of a step */
    unsigned steps;         /* 0: as many as it takes */
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
    const uint64_t now = m->allocator.allocated.now - m->waiting;
    if (m->starting || now <= out->allocated)
        return;
    out->allocated = now;
    out->phase = r->phase;
    out->position = r->position;
    out->later = r->later;
    out->beside = r->beside;
}

/* What waits for another stream is used, but not allocated. Where the device
 * has an end the allocator waits for the streams, too, before it gives up. */
static void note_waiting(struct tracer *r, struct hold *h)
{
    struct simulation *m = r->sim;
    if (!h->waits || h->block == NULL)
        return;
    if (!r->tight) {
        m->waiting += h->block->size;
        return;
    }
    m->pool_now[pool_of(h, h->bytes)] -= h->block->size;
    allocator_retire(&m->allocator, h->block);
    h->block = NULL;
}

void simulate_birth(struct tracer *r, struct hold *h)
{
    struct simulation *m = r->sim;
    switch (allocator_malloc(&m->allocator, &h->block, h->bytes,
                             (uint32_t)h->stream)) {
    case ALLOCATOR_OK:
        if (h->waits)
            m->pool_now[pool_of(h, h->bytes)] += h->block->size;
        else
            note_peak(r, h);
        note_waiting(r, h);
        break;
    case ALLOCATOR_OOM: m->out->oom = !h->waits || m->out->oom; break;
    case ALLOCATOR_NOMEM: r->failed = true; break;
    }
    if (++m->births >= m->births_most && m->births_most != 0)
        r->failed = true;
}

void simulate_death(struct tracer *r, struct hold *h)
{
    struct simulation *m = r->sim;
    if (h->waits && r->tight)
        allocator_sync(&m->allocator);
    if (h->block == NULL)
        return;
    m->pool_now[pool_of(h, h->bytes)] -= h->block->size;
    m->waiting -= h->waits ? h->block->size : 0;
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

static uint64_t mix_residents(const struct tracer *r, uint64_t hash,
                              size_t micro)
{
    const struct resident *row = &r->resident[micro % r->ring * r->s->n];
    for (uint32_t i = 0; i < r->s->n; i++) {
        hash = mix_hold(r, hash, row[i].checkpoint);
        for (uint32_t k = 0; k < r->slots; k++)
            if (row[i].slot[k] != NO_HOLD)
                hash = mix_hold(r, hash + k, row[i].slot[k]);
    }
    return hash;
}

/* What is alive and where, the micro-batch that is next to run backward first:
 * all else that decides what follows. Free memory is the rest of the
 * segments. */
static uint64_t state_hash(const struct tracer *r, uint64_t next)
{
    const struct allocator *a = &r->sim->allocator;
    uint64_t hash = mix(a->reserved.now + a->device_allocs);
    for (uint32_t i = 0; i < r->ring; i++)
        hash = mix_residents(r, hash + i, (size_t)(next % r->ring + i));
    for (uint32_t l = 0; l < r->n_levels; l++)
        for (size_t i = 0; i < r->level[l].n; i++)
            hash = mix_hold(r, hash + l, r->level[l].piece[i]);
    return hash;
}

/* True when all that comes is as it came in the step before: from the same
 * state after as many backwards, or a whole number of periods apart. */
static bool is_settled(const struct marks *before, struct mark at)
{
    for (uint32_t i = 0; i < before->n; i++) {
        const struct mark *m = &before->v[i];
        if (m->hash != at.hash)
            continue;
        const uint64_t apart = m->backward > at.backward
                                   ? m->backward - at.backward
                                   : at.backward - m->backward;
        if (apart == 0
            || (before->period != 0 && i >= before->cycle
                && apart % before->period == 0))
            return true;
    }
    return false;
}

uint64_t simulate_skip(struct tracer *r, uint64_t backward, uint64_t left)
{
    struct simulation *m = r->sim;
    struct marks *now = &m->now;
    if (m->steps != 0 || r->turns != NULL || now->period != 0)
        return 0;
    const uint64_t unit = r->s->chunks > 1 ? run_round(r->s->run) : 1;
    const struct allocator *a = &m->allocator;
    const struct mark at = { state_hash(r, backward * unit), backward,
                             a->reserved.peak + a->allocated.peak };
    if (is_settled(&m->before, at)) {
        r->settled = true;
        return left;
    }
    for (uint32_t i = now->n; i-- > 0;) {
        if (now->v[i].hash != at.hash)
            continue;
        now->cycle = i;
        now->period = backward - now->v[i].backward;
        return left / now->period * now->period;
    }
    if (now->n >= MARKS_QUIET && m->births - m->births_before > QUIET_BIRTHS
        && now->v[now->n - MARKS_QUIET].peaks == at.peaks)
        return left;
    if (now->n < MARKS_MAX)
        now->v[now->n++] = at;
    return 0;
}

static void next_step(struct simulation *m)
{
    m->births_before = m->births;
    m->before = m->now;
    m->now.n = 0;
    m->now.period = 0;
}

/* ---- the steps ---- */

/* All that follows has been, then: as after the step before, or two steps, where
 * things change places. */
static bool came_before(const uint64_t *after, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (after[i] == after[n])
            return true;
    return false;
}

static void live(struct tracer *r)
{
    struct simulation *m = r->sim;
    struct simulated *out = m->out;
    const unsigned most = m->steps == 0 ? STEPS_MAX : m->steps;
    uint64_t after[STEPS_MAX], peaks = 0;
    unsigned quiet = 0, n = 0;
    for (unsigned i = 0; i < most; i++) {
        next_step(m);
        tracer_step(r, i == 0 ? TRACE_FIRST : TRACE_LATER);
        if (r->failed || r->settled)
            return;
        out->steps = i + 1;
        out->steady = m->allocator.allocated.now;
        if (m->steps == 0) {
            after[n] = state_hash(r, 0);
            if (came_before(after, n++))
                return;
        }
        const uint64_t now =
            m->allocator.reserved.peak + m->allocator.allocated.peak;
        quiet = now == peaks ? quiet + 1 : 0;
        peaks = now;
        if (m->steps == 0 && loop_holds_over(r->s) && quiet == STEPS_QUIET)
            return;
    }
}

/* Steps of micro-batches that differ in length, as many as there are. */
static void live_turns(struct tracer *r)
{
    struct simulated *out = r->sim->out;
    for (out->steps = 0; !r->failed && turns_begin(r); out->steps++)
        tracer_step(r, out->steps == 0 ? TRACE_FIRST : TRACE_LATER);
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
    *r = (struct tracer){
        .a = most->a, .f = f, .s = s, .sim = m, .tight = most->device_bytes != 0
    };
    m->out = out;
    m->births_most = most->births;
    m->steps = most->steps;
    const struct allocator_config config = { .expandable = s->run->allocator
                                                           == ALLOC_EXPANDABLE,
                                             .capacity = most->device_bytes };
    allocator_init(&m->allocator, &config, most->a);
    if (!tracer_init(r))
        return false;
    if (most->lengths != NULL && !turns_init(r, most->lengths, most->order))
        return false;
    m->starting = true;
    trace_start(r);
    m->starting = false;
    if (r->turns != NULL)
        live_turns(r);
    else
        live(r);
    out->births = m->births;
    if (r->failed)
        return m->births_most != 0 && m->births >= m->births_most;
    out->done = true;
    out->reserved = m->allocator.reserved.peak;
    out->retries = m->allocator.retries;
    count_pools(out, &m->allocator);
    return true;
}
