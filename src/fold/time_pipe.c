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
    uint32_t
        turned; /* 1: of its two directions, the nearer end's is the other */
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
    struct order *o = ctx;
    put(o, slot->kind, slot->chunk ^ o->turned, slot->micro ^ o->turned);
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

/* Numbers that an order of so many needs: in flight, and two waiting each. */
static size_t room_of(const struct run *run, uint64_t micros)
{
    return (size_t)(3 * max_u64(micros, schedule_micros(run)) + 4);
}

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
    if (schedule_is_dual(run)) {
        s.chunks = 2;
        o->turned = r >= run->pp / 2;
    }
    memset(room, 0, room_of(run, micros) * sizeof *room);
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

/* A slot's place. */
struct place_of {
    enum slot_kind kind;
    uint64_t stage, micro;
};

static struct place_of slot_place(const struct run *run, uint64_t rank,
                                  uint32_t code)
{
    return (struct place_of){ (enum slot_kind)(code & 3),
                              pipe_stage(run, rank, code >> 2 & 1023),
                              code >> 12 };
}

/* DualPipe's forward and the backward after it are one, kernels of both beside
 * each other: they begin and end together, but for the first backward of a rank
 * in the middle [deepseek-ai/DualPipe, dualpipe.py, step 4]. */
static bool joined(const struct run *run, const struct order *o)
{
    const bool dual = schedule_is_dual(run);
    if ((!dual && run->schedule != SCHED_DUALPIPE_V) || o->next + 1 >= o->n)
        return false;
    const uint32_t next = o->code[o->next + 1];
    return (o->code[o->next] & 3) == SLOT_FORWARD && (next & 3) == SLOT_BACKWARD
           && next >> 12 >= (dual ? 2 : 1);
}

static double slot_time(const struct pipe *x, const struct place_of *k)
{
    const struct pipe_pass *p = &x->at[k->stage];
    switch (k->kind) {
    case SLOT_FORWARD: return p->forward;
    case SLOT_BACKWARD: return p->input + p->weight;
    case SLOT_INPUT: return p->input;
    case SLOT_WEIGHT: return p->weight;
    case SLOT_KINDS: break;
    }
    return 0;
}

static void tell(struct simulation *s, const struct place_of *k, double done)
{
    if (k->kind == SLOT_FORWARD)
        *at(s->forward, s, k->stage, k->micro) = done;
    else if (k->kind != SLOT_WEIGHT)
        *at(s->back, s, k->stage, k->micro) = done;
}

/* The next slots of a rank, if all that they wait for is there. */
static bool run_slots(struct simulation *s, uint64_t r)
{
    struct order *o = &s->rank[r];
    const struct run *run = s->x->run;
    const size_t n = joined(run, o) ? 2 : 1;
    struct place_of k[2];
    double done = o->clock, time = 0;
    for (size_t i = 0; i < n; i++) {
        k[i] = slot_place(run, r, o->code[o->next + i]);
        const double start = ready(s, k[i].kind, k[i].stage, k[i].micro);
        if (start < 0)
            return false;
        done = fmax(done, start);
        time += slot_time(s->x, &k[i]);
    }
    done += time;
    for (size_t i = 0; i < n; i++)
        tell(s, &k[i], done);
    const bool last = k[0].kind == SLOT_FORWARD ? k[0].stage + 1 == s->stages
                                                : k[0].stage == 0;
    o->clock = done + (blocks(run) && !last ? s->x->send : 0);
    o->next += n;
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
            while (s->rank[r].next < s->rank[r].n && run_slots(s, r))
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
    uint32_t *room = ARENA_NEW(a, uint32_t, room_of(run, micros));
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

/* Passes as the rank sees them: where senders wait, a send is part of each. */
static struct pipe_pass stage_pass(const struct pipe *x, uint64_t i)
{
    struct pipe_pass p = x->at[i];
    if (i + 1 < pipe_stages(x->run))
        p.forward += x->send;
    if (i > 0)
        p.input += x->send;
    return p;
}

/* All micro-batches there, then all back: the slowest stage decides each. */
static double there_and_back(const struct pipe *x)
{
    const double m = (double)x->run->grad_accum;
    double sum = 0, there = 0, back = 0;
    for (uint64_t i = 0; i < x->run->pp; i++) {
        const struct pipe_pass p = stage_pass(x, i);
        sum += p.forward + p.input + p.weight;
        there = fmax(there, p.forward);
        back = fmax(back, p.input + p.weight);
    }
    return sum + (m - 1) * (there + back);
}

/* 1F1B, if stage i never waits between its first backward and its last forward:
 * before it the first micro-batch goes to the end and returns, after it the last
 * one does, and those in flight at i are the difference. The slowest decides. */
static double one_by_one(const struct pipe *x)
{
    const uint64_t pp = x->run->pp, m = x->run->grad_accum;
    double after = 0, longest = 0;
    for (uint64_t i = pp; i-- > 0;) {
        const struct pipe_pass p = stage_pass(x, i);
        const double one = p.forward + p.input + p.weight;
        const double between = (double)(m - min_u64(m, pp - i));
        longest = fmax(longest, after + between * one);
        after += one;
    }
    return after + longest;
}

/* By its order alone, to and fro. */
static double one_at_a_time(const struct pipe *x)
{
    const double hops = (double)(pipe_stages(x->run) - 1) * x->send;
    double sum = 2 * hops;
    for (uint64_t i = 0; i < pipe_stages(x->run); i++)
        sum += x->at[i].forward + x->at[i].input + x->at[i].weight;
    return (double)x->run->grad_accum * sum;
}

/* So many run, the rest at the pace of the rank that is busiest. */
static double run_some(const struct pipe *x, uint64_t some, struct arena *a)
{
    const uint64_t m = x->run->grad_accum, run = min_u64(m, some);
    const double first = pipe_simulated(x, run, a);
    return first < 0 ? first : first + (double)(m - run) * pipe_busy(x);
}

/* Rounds of as many micro-batches as there are ranks, after which the pace is
 * the busiest rank's: another one a few per cent less busy decides before. */
enum { ROUNDS_SHORT = 2, ROUNDS = 5, ROUNDS_LONG = 64 };

double pipe_closed(const struct pipe *x, struct arena *a)
{
    const uint64_t p = x->run->pp;
    switch (x->run->schedule) {
    case SCHED_NAIVE: return one_at_a_time(x);
    case SCHED_GPIPE: return there_and_back(x);
    case SCHED_ZB_H1: return run_some(x, ROUNDS_SHORT * p, a);
    case SCHED_INTERLEAVED:
    case SCHED_ZB_V:
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V: return run_some(x, ROUNDS * p, a);
    case SCHED_1F1B:
    case SCHEDULE_COUNT: break;
    }
    return one_by_one(x);
}

double pipe_time(const struct pipe *x, struct arena *a)
{
    if (x->run->schedule == SCHED_NAIVE)
        return one_at_a_time(x);
    return run_some(x, ROUNDS_LONG * x->run->pp, a);
}
