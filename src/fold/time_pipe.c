/*
 * A pipeline's time: its schedule run event by event over the stages' passes,
 * and a closed form of the same for searches. Owns what waits for what;
 * refuses to know what a pass is made of. [docs/method.md eq. step-time]
 */
#include "fold/time.h"

#include "base/cold.h"
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

/* What a stage does of any micro-batch so: rows of simulation.done that it waits
 * for and fills, one after another for micro-batches, and how long. */
struct timed {
    size_t needs, sets;
    double hop;   /* what it waits for is so long on its way to it */
    double sends; /* its rank waits so long for its own result to be sent */
    double time;
};

/* A pass of micro-batches one after another. Where backwards are not split,
 * SLOT_INPUT is the same with what the last stage defers left out. */
struct spell {
    uint32_t micro, n, pass; /* the first; the first rank's pass */
};

/* Of a rank's forwards, or backwards: the next one, and how many like it are
 * left of the spell at hand; of none it is one that never can. */
struct lane {
    const double *needs;
    double *sets, hop, sends, time;
    uint64_t left;
    const struct spell *spell, *end; /* after that */
};

struct order {
    /* of backwards that are split, and of a rank's chunks */
    struct step *step;
    size_t n, next;
    const struct timed *pass[SPLIT_CHUNKS_MAX];
    /* else forwards, of which so many more may come now, and backwards */
    struct lane there, back;
    int64_t room;
    double clock;
};

/* Both ends of DualPipe do the same at the same time: half of its ranks are run,
 * and the micro-batches of a direction. */
struct simulation {
    const struct pipe *x;
    uint64_t micros, stages, ranks;
    uint64_t round; /* of micro-batches, where backwards are not split */
    bool dual, joins;
    struct order *rank;
    double *done; /* [ROWS], then forward and backward, [stages], of [micros]:
                     when it is; < 0: not */
    struct timed *pass; /* [stages][SLOT_KINDS] */
};

/* What nothing comes before, what nobody waits for, and what never comes. */
enum { ROW_THERE, ROW_NOBODY, ROW_NEVER, ROWS };

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
        if (kind == SLOT_INPUT && !schedule_splits(s->x->run))
            p.time += at->weight - (last ? s->x->deferred_s : 0);
        break;
    case SLOT_WEIGHT:
        p.needs = row_of(s, true, stage);
        p.time = at->weight + at->remade;
        break;
    case SLOT_KINDS: break;
    }
    return p;
}

/* The passes of a rank's chunks. */
static void list_ranks(struct simulation *s)
{
    const struct run *run = s->x->run;
    const uint64_t both = s->dual ? 2 * s->micros : s->micros;
    for (uint64_t r = 0; r < s->ranks; r++) {
        struct order *o = &s->rank[r];
        const uint64_t chunks = s->dual ? 2 : run_chunks(run);
        for (uint64_t c = 0; c < chunks; c++)
            o->pass[c] = &s->pass[pipe_stage(run, r, c) * SLOT_KINDS];
        o->n = schedule_steps(o->step, run, r, both);
    }
}

/* Micro-batches that go one after another, as they are listed. */
static uint64_t round_of(const struct run *run)
{
    return run_loops(run) ? run_round(run) : run->pp;
}

/* Those that are deferred may end in the midst of one. */
static size_t spells_of(const struct simulation *s)
{
    const struct run *run = s->x->run;
    return (size_t)(div_up(s->micros, s->round) * run_chunks(run)) + 1;
}

/* Of micro-batches from `first` on, as they come to a stage of the first rank. */
static struct spell spell_of(const struct simulation *s, uint64_t first,
                             uint64_t stage, enum slot_kind kind)
{
    return (struct spell){ .micro = (uint32_t)first,
                           .n = (uint32_t)min_u64(s->round, s->micros - first),
                           .pass = (uint32_t)(stage * SLOT_KINDS + kind) };
}

/* Backwards of the chunk that the head is in: of those that are deferred, and of
 * the others. Returns how many there are. */
static size_t put_last_spells(const struct simulation *s, struct spell *to,
                              uint64_t first, uint64_t stage)
{
    const uint64_t all = s->x->run->deferred_wgrads;
    to[0] = spell_of(s, first, stage, SLOT_BACKWARD);
    if (all <= first)
        return 1;
    const uint32_t n = (uint32_t)min_u64(all - first, to[0].n);
    to[1] = to[0];
    to[0] = spell_of(s, first, stage, SLOT_INPUT);
    to[0].n = n;
    to[1].micro += n;
    to[1].n -= n;
    return to[1].n > 0 ? 2 : 1;
}

/* Rounds of micro-batches go through the chunks, backward from the last; other
 * ranks' are the same of the stages beside. Returns how many spells go back. */
static size_t put_spells(const struct simulation *s, struct spell *there,
                         struct spell *back)
{
    const uint64_t chunks = run_chunks(s->x->run);
    size_t n = 0, m = 0;
    for (uint64_t first = 0; first < s->micros; first += s->round) {
        for (uint64_t c = 0; c < chunks; c++) {
            const uint64_t stage = pipe_stage(s->x->run, 0, c);
            const uint64_t last = pipe_stage(s->x->run, 0, chunks - 1 - c);
            there[n++] = spell_of(s, first, stage, SLOT_FORWARD);
            if (c == 0)
                m += put_last_spells(s, &back[m], first, last);
            else
                back[m++] = spell_of(s, first, last, SLOT_BACKWARD);
        }
    }
    return m;
}

/* False where there is none. */
static bool next_spell(const struct simulation *s, struct lane *l,
                       uint64_t rank)
{
    if (l->spell == l->end) {
        l->needs = s->done + ROW_NEVER * s->micros;
        return false;
    }
    const struct spell *x = l->spell++;
    const struct timed *p = &s->pass[x->pass + rank * SLOT_KINDS];
    l->left = x->n;
    l->needs = s->done + p->needs + x->micro;
    l->sets = s->done + p->sets + x->micro;
    l->hop = p->hop;
    l->sends = p->sends;
    l->time = p->time;
    return true;
}

static bool merge_ranks(struct simulation *s, struct arena *a)
{
    const size_t n = spells_of(s);
    struct spell *there = ARENA_ROOM(a, struct spell, n);
    struct spell *back = ARENA_ROOM(a, struct spell, n);
    if (there == NULL || back == NULL)
        return false;
    const size_t m = put_spells(s, there, back);
    for (uint64_t r = 0; r < s->ranks; r++) {
        struct order *o = &s->rank[r];
        o->there = (struct lane){ .spell = there, .end = there + n - 1 };
        o->back = (struct lane){ .spell = back, .end = back + m };
        o->room = (int64_t)stage_in_flight(s->x->run, r);
        next_spell(s, &o->there, r);
        next_spell(s, &o->back, r);
    }
    return true;
}

/* ---- events ---- */

static double later(double a, double b)
{
    return b > a ? b : a;
}

/* DualPipe's forward and the backward after it are one, kernels of both beside
 * each other: they begin and end together, but for the first backward of a rank
 * in the middle [deepseek-ai/DualPipe, dualpipe.py, step 4]. */
static bool is_joined(const struct simulation *s, const struct step *x,
                      const struct step *end)
{
    return s->joins && x->kind == SLOT_FORWARD && x + 1 < end
           && x[1].kind == SLOT_BACKWARD && x[1].micro >> s->dual > 0;
}

/* As far as what a rank waits for is there. Of DualPipe the k-th micro-batch of
 * direction d is 2 k + d. Two that run beside each other both begin when either
 * can. */
static bool run_steps(const struct simulation *s, struct order *o)
{
    const struct step *x = &o->step[o->next], *end = &o->step[o->n];
    const struct timed *p, *q;
    double *done = s->done, clock = o->clock; /* no store can change it */
    for (; x < end; x++) {
        p = &o->pass[x->chunk][x->kind];
        const size_t k = x->micro >> s->dual;
        const double there = done[p->needs + k];
        if (there < 0)
            break;
        const double ready = later(clock, there + p->hop);
        double *sets = &done[p->sets + k];
        if (!is_joined(s, x, end)) {
            *sets = ready + p->time;
            clock = *sets + p->sends;
            continue;
        }
        q = &o->pass[x[1].chunk][x[1].kind];
        const size_t l = x[1].micro >> s->dual;
        const double back = done[q->needs + l];
        if (back < 0)
            break;
        x++;
        clock = later(ready, back + q->hop) + (p->time + q->time);
        *sets = done[q->sets + l] = clock;
        clock += p->sends;
    }
    const size_t next = (size_t)(x - o->step);
    const bool moved = next > o->next;
    o->next = next;
    o->clock = clock;
    return moved;
}

/* A rank's forwards are over: only backwards come. */
#define NO_ROOM (INT64_MIN / 2)

/* If what it waits for is there. */
static inline bool run_next(struct lane *l, double *clock)
{
    const double there = *l->needs;
    if (there < 0)
        return false;
    const double done = later(*clock, there + l->hop) + l->time;
    *l->sets++ = done;
    *clock = done + l->sends;
    l->needs++;
    l->left--;
    return true;
}

/* Forwards until so many are ahead, then one of each, then backwards. */
static bool run_turns(const struct simulation *s, struct order *o,
                      uint64_t rank)
{
    struct lane *there = &o->there, *back = &o->back;
    int64_t room = o->room;
    double clock = o->clock;
    bool moved = false;
    for (;; moved = true) {
        if (room > 0) {
            if (!run_next(there, &clock))
                break;
            room--;
            if (there->left == 0 && !next_spell(s, there, rank))
                room = NO_ROOM;
        } else {
            if (!run_next(back, &clock))
                break;
            room++;
            if (back->left == 0)
                next_spell(s, back, rank);
        }
    }
    o->room = room;
    o->clock = clock;
    return moved;
}

/* As far as it comes. */
static bool run_rank(struct simulation *s, uint64_t rank)
{
    struct order *o = &s->rank[rank];
    return o->step != NULL ? run_steps(s, o) : run_turns(s, o, rank);
}

static bool is_over(const struct order *o)
{
    return o->next == o->n && o->there.left == 0 && o->back.left == 0;
}

/* What the last rank does when its last backward is over. */
static double flush(const struct pipe *x, uint64_t rank)
{
    return rank + 1 < x->run->pp
               ? 0
               : (double)x->run->deferred_wgrads * x->deferred_s;
}

/* Rounds over the ranks, to and fro, each as far as it comes. */
static double run_all(struct simulation *s)
{
    const uint64_t p = s->ranks;
    double longest = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint64_t r = 0; r < p; r++)
            moved = run_rank(s, r) || moved;
        for (uint64_t r = p - 1; r-- > 0;) /* the last one has just run */
            moved = run_rank(s, r) || moved;
    }
    for (uint64_t r = 0; r < p; r++) {
        if (!is_over(&s->rank[r]))
            return -1; /* an order that waits for itself */
        longest = fmax(longest, s->rank[r].clock + flush(s->x, r));
    }
    return longest;
}

static bool simulation_init(struct simulation *s, struct arena *a)
{
    const size_t never = ROW_NEVER * (size_t)s->micros,
                 cells = row_of(s, true, s->stages);
    double *done = ARENA_ROOM(a, double, cells);
    s->rank = ARENA_NEW(a, struct order, (size_t)s->ranks);
    s->pass = ARENA_ROOM(a, struct timed, (size_t)s->stages * SLOT_KINDS);
    if (a->failed)
        return false;
    for (size_t i = 0; i < never; i++)
        done[i] = 0;
    for (size_t i = never; i < cells; i++)
        done[i] = -1;
    s->done = done;
    for (uint64_t i = 0; i < s->stages; i++)
        for (unsigned k = 0; k < SLOT_KINDS; k++)
            s->pass[i * SLOT_KINDS + k] = pass_of(s, (enum slot_kind)k, i);
    return true;
}

static bool steps_room(struct simulation *s, struct arena *a)
{
    const uint64_t both = s->dual ? 2 * s->micros : s->micros;
    const size_t n = (size_t)schedule_room(s->x->run, both);
    for (uint64_t r = 0; r < s->ranks; r++)
        s->rank[r].step = ARENA_ROOM(a, struct step, n);
    return !a->failed;
}

static double simulate(struct simulation *s, const struct pipe *x,
                       uint64_t micros, struct arena *a)
{
    const bool dual = schedule_is_dual(x->run);
    *s =
        (struct simulation){ .x = x,
                             .micros = dual ? micros / 2 : micros,
                             .round = round_of(x->run),
                             .stages = pipe_stages(x->run),
                             .ranks = dual ? x->run->pp / 2 : x->run->pp,
                             .dual = dual,
                             .joins =
                                 dual || x->run->schedule == SCHED_DUALPIPE_V };
    const bool splits = schedule_splits(x->run);
    if (!simulation_init(s, a) || (splits && !steps_room(s, a))
        || (!splits && !merge_ranks(s, a)))
        return -1;
    if (splits)
        list_ranks(s);
    return run_all(s);
}

double pipe_simulated(const struct pipe *x, uint64_t micros, struct arena *a)
{
    struct simulation s;
    return simulate(&s, x, micros, a);
}

/* ---- closed form ---- */

/* What a rank does on the average of a step, or of micro-batches between its
 * beginning and its end, of which DualPipeV splits no backward. */
enum when { ON_AVERAGE, BETWEEN };

COLD static double remade(const struct pipe *x, uint64_t rank, enum when when)
{
    const struct run *run = x->run;
    double sum = 0;
    if (when == BETWEEN && run->schedule == SCHED_DUALPIPE_V)
        return 0;
    for (uint64_t c = 0; c < run_chunks(run); c++)
        sum += x->at[pipe_stage(run, rank, c)].remade
               * schedule_split_share(run, rank, c);
    return sum;
}

/* Of a rank: what it computes for one micro-batch, its sends included where it
 * waits for them. */
static double busy(const struct pipe *x, uint64_t rank, enum when when)
{
    const struct run *run = x->run;
    const uint64_t chunks = schedule_is_dual(run) ? 2 : run_chunks(run);
    double sum = 0;
    for (uint64_t c = 0; c < chunks; c++) {
        const struct pipe_pass *p = &x->at[pipe_stage(run, rank, c)];
        sum += p->forward + p->input + p->weight;
    }
    if (x->remakes)
        sum += remade(x, rank, when);
    if (schedule_is_dual(run))
        sum /= 2; /* of the micro-batches, half go either way */
    const uint64_t last = run->pp - 1;
    const double sends = (rank > 0 ? 1 : 0) + (rank < last ? 1 : 0);
    return sum + (blocks(run) ? sends * x->send : 0);
}

static uint64_t busiest(const struct pipe *x, enum when when)
{
    uint64_t most = 0;
    double longest = busy(x, 0, when);
    for (uint64_t r = 1; r < x->run->pp; r++) {
        const double time = busy(x, r, when);
        most = time > longest ? r : most;
        longest = later(longest, time);
    }
    return most;
}

uint64_t pipe_busiest(const struct pipe *x)
{
    return busiest(x, ON_AVERAGE);
}

double pipe_busy(const struct pipe *x)
{
    return busy(x, pipe_busiest(x), ON_AVERAGE);
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

/* Where the last rank puts some of its work off, in each that is not run. */
static double deferred_pace(const struct pipe *x)
{
    const uint64_t last = x->run->pp - 1;
    double most = busy(x, last, BETWEEN) - x->deferred_s;
    for (uint64_t r = 0; r < last; r++)
        most = fmax(most, busy(x, r, BETWEEN));
    return most;
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
    const uint64_t round = s->round, rounds = s->micros / round;
    const uint64_t rank = busiest(x, BETWEEN);
    const double most = busy(x, rank, BETWEEN);
    if (x->run->schedule != SCHED_INTERLEAVED || rounds < PACE_ROUNDS_RUN)
        return most;
    const double *done =
        &s->done[row_of(s, false, rank) + (rounds - 1) * round];
    const uint64_t micros = PACE_ROUNDS * round;
    const double seen = (done[0] - *(done - micros)) / (double)micros;
    return seen > most * (1 + PACE_OFF) ? seen : most;
}

/* So many run, the rest at their pace. */
static double run_some(const struct pipe *x, uint64_t some, struct arena *a)
{
    const uint64_t m = x->run->grad_accum;
    uint64_t run = min_u64(m, some);
    struct simulation s;
    if (run_loops(x->run)) /* whole rounds */
        run -= run % run_round(x->run);
    const double first = simulate(&s, x, run, a);
    if (first < 0 || run == m)
        return first;
    const uint64_t deferred = max_u64(x->run->deferred_wgrads, run) - run;
    return first + (double)deferred * deferred_pace(x)
           + (double)(m - run - deferred) * pace(&s);
}

/* Rounds, without chunks of as many micro-batches as there are ranks, after
 * which the pace is the busiest rank's: another one a few per cent less busy
 * decides before. */
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
    case SCHED_ZB_INTERLEAVED: return run_some(x, ROUNDS * round_of(x->run), a);
    case SCHED_ZB_V: /* halves that long are uneven for long */
        return x->remakes ? pipe_time(x, a) : run_some(x, ROUNDS * p, a);
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V: return run_some(x, ROUNDS * p, a);
    case SCHED_1F1B:
    case SCHEDULE_COUNT: break;
    }
    return x->run->grad_accum > FORWARDS_FEW / p && x->run->deferred_wgrads == 0
               ? one_by_one(x)
               : pipe_time(x, a);
}

double pipe_time(const struct pipe *x, struct arena *a)
{
    if (x->run->schedule == SCHED_NAIVE)
        return one_at_a_time(x);
    return run_some(x, ROUNDS_LONG * x->run->pp, a);
}
