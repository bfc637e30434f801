/*
 * A pipeline's time: its schedule run event by event over the stages' passes,
 * and a closed form of the same for searches. Owns what waits for what;
 * refuses to know what a pass is made of. [docs/method.md eq. step-time]
 */
#include "fold/time.h"

#include "fold/schedule.h"

#include <math.h>

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

/* A slot of a rank's order: which pass, and of which micro-batch. */
struct event {
    uint32_t micro, pass; /* index into simulation.pass */
    bool joined;          /* runs beside the next one */
};

/* What a stage does of any micro-batch so: rows of simulation.done that it waits
 * for and fills, one after another for micro-batches, and how long. */
struct timed {
    size_t needs, sets;
    double hop;   /* what it waits for is so long on its way to it */
    double sends; /* its rank waits so long for its own result to be sent */
    double time;
};

struct order {
    struct event *event;
    size_t n, next;
    double clock;
};

/* Both ends of DualPipe do the same at the same time: half of its ranks are run,
 * and the micro-batches of a direction. */
struct simulation {
    const struct pipe *x;
    uint64_t micros, stages, ranks;
    bool dual;
    struct order *rank;
    double *done; /* [ROWS], then forward and backward, [stages], of [micros]:
                     when it is; < 0: not */
    struct timed *pass; /* [stages][SLOT_KINDS] */
};

/* What nothing comes before, and what nobody waits for. */
enum { ROW_THERE, ROW_NOBODY, ROWS };

/* Where the row of a stage's forwards, or backwards, begins. */
static size_t row_of(const struct simulation *s, bool back, uint64_t stage)
{
    return (size_t)((ROWS + (back ? s->stages : 0) + stage) * s->micros);
}

/* Sends of schedules without chunks are waited for by the sender, too
 * [Megatron-LM p2p_communication.py; deepspeed/runtime/pipe/p2p.py]. */
static bool blocks(const struct run *run)
{
    return run->schedule == SCHED_1F1B || run->schedule == SCHED_GPIPE;
}

/* What each waits for, and whose it is. */
static struct timed pass_of(const struct simulation *s, enum slot_kind kind,
                            uint64_t stage)
{
    const struct pipe_pass *at = &s->x->at[stage];
    const bool first = stage == 0, last = stage + 1 == s->stages;
    const double send = s->x->send, wait = blocks(s->x->run) ? send : 0;
    struct timed p = { .sets = ROW_NOBODY * (size_t)s->micros };
    switch (kind) {
    case SLOT_FORWARD:
        p.needs =
            first ? ROW_THERE * (size_t)s->micros : row_of(s, false, stage - 1);
        p.sets = row_of(s, false, stage);
        p.hop = first ? 0 : send;
        p.sends = last ? 0 : wait;
        p.time = at->forward;
        break;
    case SLOT_BACKWARD:
    case SLOT_INPUT:
        p.needs = last ? row_of(s, false, stage) : row_of(s, true, stage + 1);
        p.sets = row_of(s, true, stage);
        p.hop = last ? 0 : send;
        p.sends = first ? 0 : wait;
        p.time = at->input + (kind == SLOT_INPUT ? 0 : at->weight);
        break;
    case SLOT_WEIGHT:
        p.needs = row_of(s, true, stage);
        p.time = at->weight;
        break;
    case SLOT_KINDS: break;
    }
    return p;
}

/* A rank's order as it is walked. */
struct noting {
    const struct simulation *s;
    struct order *to;
    const uint64_t *stage; /* of a chunk */
};

static void put(const struct noting *o, enum slot_kind kind, uint64_t chunk,
                uint64_t micro)
{
    o->to->event[o->to->n++] =
        (struct event){ .micro = (uint32_t)micro,
                        .pass =
                            (uint32_t)(o->stage[chunk] * SLOT_KINDS + kind) };
}

static bool note(void *ctx, const struct slot *slot)
{
    const struct noting *o = ctx;
    put(o, slot->kind, slot->chunk, o->s->dual ? slot->micro / 2 : slot->micro);
    return true;
}

/* Forwards until so many are in flight, then one of each, then backwards. */
static void one_each(const struct noting *o, uint64_t ahead, uint64_t micros)
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

/* DualPipe's forward and the backward after it are one, kernels of both beside
 * each other: they begin and end together, but for the first backward of a rank
 * in the middle [deepseek-ai/DualPipe, dualpipe.py, step 4]. */
static void join(const struct simulation *s, struct order *o)
{
    if (!s->dual && s->x->run->schedule != SCHED_DUALPIPE_V)
        return;
    for (size_t i = 0; i + 1 < o->n; i++) {
        const struct event *next = &o->event[i + 1];
        o->event[i].joined = o->event[i].pass % SLOT_KINDS == SLOT_FORWARD
                             && next->pass % SLOT_KINDS == SLOT_BACKWARD
                             && next->micro > 0;
    }
}

/* Room that orders share. */
struct orders {
    uint64_t *stage;   /* [chunks] */
    uint32_t *waiting; /* of a walk */
};

static void walk_rank(struct simulation *s, uint64_t r,
                      const struct orders *room)
{
    const struct run *run = s->x->run;
    const uint64_t both = s->dual ? 2 * s->micros : s->micros;
    struct noting o = { s, &s->rank[r], room->stage };
    struct stage stage = { .run = run,
                           .index = r,
                           .chunks = s->dual ? 2 : (uint32_t)run_chunks(run),
                           .in_flight = stage_in_flight(run, r) };
    for (uint64_t c = 0; c < stage.chunks; c++)
        room->stage[c] = pipe_stage(run, r, c);
    if (run->schedule == SCHED_INTERLEAVED)
        schedule_interleaved(&stage, &s->micros, NULL, note, &o);
    else if (schedule_splits(run))
        schedule_walk(&stage, both, room->waiting, note, &o);
    else
        one_each(&o, min_u64(stage.in_flight, s->micros), s->micros);
    join(s, &s->rank[r]);
}

/* ---- events ---- */

/* The next of a rank, if all that it waits for is there. */
static bool run_event(struct simulation *s, struct order *o)
{
    const struct event *e = &o->event[o->next];
    const size_t n = e->joined ? 2 : 1;
    double done = o->clock, time = 0;
    for (size_t i = 0; i < n; i++) {
        const struct timed *p = &s->pass[e[i].pass];
        const double there = s->done[p->needs + e[i].micro];
        if (there < 0)
            return false;
        const double start = there + p->hop;
        done = start > done ? start : done;
        time += p->time;
    }
    done += time;
    for (size_t i = 0; i < n; i++)
        s->done[s->pass[e[i].pass].sets + e[i].micro] = done;
    o->clock = done + s->pass[e->pass].sends;
    o->next += n;
    return true;
}

static bool run_rank(struct simulation *s, struct order *o)
{
    const size_t from = o->next;
    while (o->next < o->n && run_event(s, o))
        ;
    return o->next > from;
}

/* Rounds over the ranks, to and fro, each as far as it comes. */
static double run_all(struct simulation *s)
{
    const uint64_t p = s->ranks;
    double longest = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint64_t r = 0; r < p; r++)
            moved = run_rank(s, &s->rank[r]) || moved;
        for (uint64_t r = p; r-- > 0;)
            moved = run_rank(s, &s->rank[r]) || moved;
    }
    for (uint64_t r = 0; r < p; r++) {
        if (s->rank[r].next < s->rank[r].n)
            return -1; /* an order that waits for itself */
        longest = fmax(longest, s->rank[r].clock);
    }
    return longest;
}

static bool simulation_init(struct simulation *s, struct orders *room,
                            struct arena *a)
{
    const struct run *run = s->x->run;
    const uint64_t chunks = s->dual ? 2 : run_chunks(run);
    const size_t cells = row_of(s, true, s->stages);
    const size_t slots =
        (size_t)((schedule_splits(run) ? 3 : 2) * chunks * s->micros);
    s->rank = ARENA_NEW(a, struct order, (size_t)s->ranks);
    s->done = ARENA_NEW(a, double, cells);
    s->pass = ARENA_NEW(a, struct timed, (size_t)s->stages * SLOT_KINDS);
    room->stage = ARENA_NEW(a, uint64_t, (size_t)chunks);
    room->waiting = ARENA_NEW(
        a, uint32_t,
        (size_t)(3 * max_u64(chunks * s->micros, schedule_micros(run))));
    if (a->failed)
        return false;
    for (size_t i = row_of(s, false, 0); i < cells; i++)
        s->done[i] = -1;
    for (uint64_t i = 0; i < s->stages; i++)
        for (unsigned k = 0; k < SLOT_KINDS; k++)
            s->pass[i * SLOT_KINDS + k] = pass_of(s, (enum slot_kind)k, i);
    for (uint64_t r = 0; r < s->ranks; r++)
        s->rank[r].event = ARENA_NEW(a, struct event, slots);
    return !a->failed;
}

static double simulate(struct simulation *s, const struct pipe *x,
                       uint64_t micros, struct arena *a)
{
    const bool dual = schedule_is_dual(x->run);
    struct orders room;
    *s = (struct simulation){ .x = x,
                              .micros = dual ? micros / 2 : micros,
                              .stages = pipe_stages(x->run),
                              .ranks = dual ? x->run->pp / 2 : x->run->pp,
                              .dual = dual };
    if (!simulation_init(s, &room, a))
        return -1;
    for (uint64_t r = 0; r < s->ranks; r++)
        walk_rank(s, r, &room);
    return run_all(s);
}

double pipe_simulated(const struct pipe *x, uint64_t micros, struct arena *a)
{
    struct simulation s;
    return simulate(&s, x, micros, a);
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

/* Rounds that show a pace, the two before the last, which ends the order; the
 * one before them still fills the pipeline. What they show is more than the
 * busiest rank's time where it is so by more than sums of doubles are off. */
enum { PACE_ROUNDS = 2, PACE_ROUNDS_RUN = 1 + PACE_ROUNDS + 1 };
#define PACE_OFF 1e-9

/* Chunks of unequal length make all ranks wait in every round of an interleaved
 * order: a micro-batch takes more than the busiest rank's time. */
static double pace(const struct simulation *s)
{
    const struct pipe *x = s->x;
    const uint64_t p = x->run->pp, rounds = s->micros / p;
    const double busy = pipe_busy(x);
    if (x->run->schedule != SCHED_INTERLEAVED || rounds < PACE_ROUNDS_RUN)
        return busy;
    const double *done =
        &s->done[row_of(s, false, pipe_busiest(x)) + (rounds - 1) * p];
    const uint64_t micros = PACE_ROUNDS * p;
    const double seen = (done[0] - *(done - micros)) / (double)micros;
    return seen > busy * (1 + PACE_OFF) ? seen : busy;
}

/* So many run, the rest at their pace. */
static double run_some(const struct pipe *x, uint64_t some, struct arena *a)
{
    const uint64_t m = x->run->grad_accum, run = min_u64(m, some);
    struct simulation s;
    const double first = simulate(&s, x, run, a);
    if (first < 0 || run == m)
        return first;
    return first + (double)(m - run) * pace(&s);
}

/* Rounds of as many micro-batches as there are ranks, after which the pace is
 * the busiest rank's: another one a few per cent less busy decides before. */
enum { ROUNDS_SHORT = 2, ROUNDS = 5, ROUNDS_LONG = 64 };

/* A few are as soon run, and tell where stages wait for each other after all. */
enum { FORWARDS_FEW = 256 };

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
    return x->run->grad_accum > FORWARDS_FEW / p ? one_by_one(x)
                                                 : pipe_time(x, a);
}

double pipe_time(const struct pipe *x, struct arena *a)
{
    if (x->run->schedule == SCHED_NAIVE)
        return one_at_a_time(x);
    return run_some(x, ROUNDS_LONG * x->run->pp, a);
}
