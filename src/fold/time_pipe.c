/*
 * A pipeline's time: its schedule run event by event over the stages' passes,
 * and a closed form of the same for searches. Owns what waits for what;
 * refuses to know what a pass is made of. [docs/method.md eq. step-time]
 */
#include "fold/time.h"

#include "fold/schedule.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

/* ---- where a chunk is ---- */

uint64_t pipe_stages(const struct run *run)
{
    return run->pp * (schedule_is_dual(run) ? 1 : run_chunks(run));
}

uint64_t pipe_stage(const struct run *run, uint64_t rank, uint64_t chunk)
{
    if (schedule_is_dual(run) || run_folds(run))
        return chunk == 0 ? rank : pipe_stages(run) - 1 - rank;
    return chunk * run->pp + rank;
}

/* ---- orders ---- */

/* A rank's slots, in order: kind, chunk and micro-batch in one number. */
struct order {
    uint32_t *code;
    size_t n, next;
    double clock;
};

static uint32_t code_of(enum slot_kind kind, uint64_t chunk, uint64_t micro)
{
    return (uint32_t)kind | (uint32_t)chunk << 2 | (uint32_t)micro << 12;
}

static void put(struct order *o, enum slot_kind kind, uint64_t chunk,
                uint64_t micro)
{
    o->code[o->n++] = code_of(kind, chunk, micro);
}

static bool note(void *ctx, const struct slot *slot)
{
    put(ctx, slot->kind, slot->chunk, slot->micro);
    return true;
}

/* Forwards until so many are in flight, then one of each, then backwards. */
static void one_each(struct order *o, uint64_t ahead, uint64_t micros)
{
    uint64_t back = 0;
    for (uint64_t k = 0; k < micros; k++) {
        if (k >= ahead)
            put(o, SLOT_BACKWARD, 0, back++);
        put(o, SLOT_FORWARD, 0, k);
    }
    while (back < micros)
        put(o, SLOT_BACKWARD, 0, back++);
}

struct simulation {
    const struct pipe *x;
    uint64_t micros, stages;
    struct order *rank;
    double *forward, *back; /* [stages][micros]: when it is done; < 0: not */
};

/* What schedule_walk() asks of a stage: its place, and room. */
static void walk_rank(struct order *o, const struct run *run, uint64_t r,
                      uint64_t micros, uint64_t *zero, uint32_t *room)
{
    struct stage s = { .run = run,
                       .index = r,
                       .chunks = (uint32_t)run_chunks(run),
                       .chunk_kept = zero,
                       .chunk_stash = zero,
                       .in_flight = stage_in_flight(run, r) };
    if (schedule_is_dual(run))
        s.chunks = 2;
    memset(room, 0, schedule_room(run) * sizeof *room);
    if (run->schedule == SCHED_INTERLEAVED)
        schedule_interleaved(&s, &micros, room, note, o);
    else if (schedule_splits(run))
        schedule_walk(&s, micros, room, note, o);
    else
        one_each(o, min_u64(s.in_flight, micros), micros);
}

/* ---- events ---- */

static double *at(double *done, const struct simulation *s, uint64_t stage,
                  uint64_t micro)
{
    return &done[stage * s->micros + micro];
}

/* When what a slot waits for is there; < 0: not yet. */
static double ready(const struct simulation *s, enum slot_kind kind,
                    uint64_t stage, uint64_t micro)
{
    double when = 0, hop = s->x->send;
    switch (kind) {
    case SLOT_FORWARD:
        if (stage == 0)
            return 0;
        when = *at(s->forward, s, stage - 1, micro);
        break;
    case SLOT_BACKWARD:
    case SLOT_INPUT:
        if (stage + 1 == s->stages) {
            when = *at(s->forward, s, stage, micro);
            hop = 0;
        } else {
            when = *at(s->back, s, stage + 1, micro);
        }
        break;
    case SLOT_WEIGHT:
        when = *at(s->back, s, stage, micro);
        hop = 0;
        break;
    case SLOT_KINDS: break;
    }
    return when < 0 ? when : when + hop;
}

/* Sends of schedules without chunks are waited for by the sender, too
 * [Megatron-LM p2p_communication.py; deepspeed/runtime/pipe/p2p.py]. */
static bool blocks(const struct run *run)
{
    return run->schedule == SCHED_1F1B || run->schedule == SCHED_GPIPE;
}

static bool run_slot(struct simulation *s, uint64_t r)
{
    struct order *o = &s->rank[r];
    const struct run *run = s->x->run;
    const uint32_t code = o->code[o->next];
    const enum slot_kind kind = (enum slot_kind)(code & 3);
    const uint64_t stage = pipe_stage(run, r, code >> 2 & 1023);
    const uint64_t micro = code >> 12;
    const double start = ready(s, kind, stage, micro);
    const struct pipe_pass *p = &s->x->at[stage];
    if (start < 0)
        return false;
    double done = fmax(o->clock, start);
    switch (kind) {
    case SLOT_FORWARD:
        done += p->forward;
        *at(s->forward, s, stage, micro) = done;
        break;
    case SLOT_BACKWARD:
        done += p->input + p->weight;
        *at(s->back, s, stage, micro) = done;
        break;
    case SLOT_INPUT:
        done += p->input;
        *at(s->back, s, stage, micro) = done;
        break;
    case SLOT_WEIGHT: done += p->weight; break;
    case SLOT_KINDS: break;
    }
    const bool last =
        kind == SLOT_FORWARD ? stage + 1 == s->stages : stage == 0;
    o->clock = done + (blocks(run) && !last ? s->x->send : 0);
    o->next++;
    return true;
}

/* Rounds over the ranks, each as far as it comes. */
static double run_all(struct simulation *s)
{
    const uint64_t p = s->x->run->pp;
    double longest = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint64_t r = 0; r < p; r++)
            while (s->rank[r].next < s->rank[r].n && run_slot(s, r))
                moved = true;
    }
    for (uint64_t r = 0; r < p; r++) {
        if (s->rank[r].next < s->rank[r].n)
            return -1; /* an order that waits for itself */
        longest = fmax(longest, s->rank[r].clock);
    }
    return longest;
}

double pipe_simulated(const struct pipe *x, uint64_t micros, struct arena *a)
{
    const struct run *run = x->run;
    const uint64_t p = run->pp, v = run_chunks(run);
    struct simulation s = { .x = x,
                            .micros = micros,
                            .stages = pipe_stages(run) };
    const size_t cells = (size_t)(s.stages * micros);
    const size_t slots = (size_t)(3 * v * micros + 8);
    uint64_t *zero = ARENA_NEW(a, uint64_t, (size_t)(v + 2));
    uint32_t *room = ARENA_NEW(a, uint32_t, (size_t)schedule_room(run) + 1);
    s.rank = ARENA_NEW(a, struct order, (size_t)p);
    s.forward = ARENA_NEW(a, double, cells);
    s.back = ARENA_NEW(a, double, cells);
    if (!zero || !room || !s.rank || !s.forward || !s.back)
        return -1;
    memset(zero, 0, (size_t)(v + 2) * sizeof *zero);
    for (size_t i = 0; i < cells; i++)
        s.forward[i] = s.back[i] = -1;
    for (uint64_t r = 0; r < p; r++) {
        s.rank[r] = (struct order){ .code = ARENA_NEW(a, uint32_t, slots) };
        if (!s.rank[r].code)
            return -1;
        walk_rank(&s.rank[r], run, r, micros, zero, room);
    }
    return run_all(&s);
}

/* ---- closed form ---- */

/* Of a rank: what it computes for one micro-batch, its sends included where it
 * waits for them. */
static double busy(const struct pipe *x, uint64_t rank)
{
    const struct run *run = x->run;
    const uint64_t chunks = schedule_is_dual(run) ? 2 : run_chunks(run);
    double sum = 0;
    for (uint64_t c = 0; c < chunks; c++) {
        const struct pipe_pass *p = &x->at[pipe_stage(run, rank, c)];
        sum += p->forward + p->input + p->weight;
    }
    if (schedule_is_dual(run))
        sum /= 2; /* of the micro-batches, half go either way */
    const uint64_t last = run->pp - 1;
    const double sends = (rank > 0 ? 1 : 0) + (rank < last ? 1 : 0);
    return sum + (blocks(run) ? sends * x->send : 0);
}

uint64_t pipe_busiest(const struct pipe *x)
{
    uint64_t most = 0;
    for (uint64_t r = 1; r < x->run->pp; r++)
        most = busy(x, r) > busy(x, most) ? r : most;
    return most;
}

double pipe_busy(const struct pipe *x)
{
    return busy(x, pipe_busiest(x));
}

/* Of all stages: a micro-batch's way there and back. */
static struct pipe_pass sums(const struct pipe *x)
{
    struct pipe_pass s = { 0, 0, 0 };
    for (uint64_t i = 0; i < pipe_stages(x->run); i++) {
        s.forward += x->at[i].forward;
        s.input += x->at[i].input;
        s.weight += x->at[i].weight;
    }
    return s;
}

double pipe_closed(const struct pipe *x)
{
    const struct run *run = x->run;
    const double p = (double)run->pp, m = (double)run->grad_accum;
    const double v = (double)run_chunks(run), longest = pipe_busy(x);
    const struct pipe_pass s = sums(x);
    const double all = s.forward + s.input + s.weight;
    const double hops = (double)(pipe_stages(run) - 1) * x->send;
    switch (run->schedule) {
    case SCHED_NAIVE: return m * (all + 2 * hops);
    case SCHED_ZB_H1:
        return m * longest
               + fmax(0, (all - longest) - 2 * (p - 1) / p * s.weight)
               + 2 * hops;
    case SCHED_ZB_V: return m * longest + 2 * hops / v;
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V: {
        const double stages = (double)pipe_stages(run);
        const double back = s.input + s.weight;
        return m * longest
               + fmax(0, (stages / 2 - 1) / stages
                             * (s.forward + 2 * back - 3 * s.weight))
               + 2 * hops / v;
    }
    case SCHED_INTERLEAVED:
        return m * longest + (p - 1) / (p * v) * all + 2 * (p - 1) * x->send;
    case SCHED_1F1B:
    case SCHED_GPIPE:
    case SCHEDULE_COUNT: break;
    }
    return m * longest + all + 4 * hops - longest;
}

double pipe_time(const struct pipe *x, struct arena *a)
{
    const struct run *run = x->run;
    const uint64_t m = run->grad_accum;
    if (run->schedule == SCHED_NAIVE || a == NULL)
        return pipe_closed(x);
    const uint64_t some = min_u64(m, schedule_micros(run));
    const double first = pipe_simulated(x, some, a);
    return first < 0 ? pipe_closed(x)
                     : first + (double)(m - some) * pipe_busy(x);
}
