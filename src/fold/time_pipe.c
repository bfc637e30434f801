/*
 * A pipeline's time: its schedule run event by event (time_simulate.c), some of
 * it, and a closed form of the same for searches. [docs/method.md eq. step-time]
 */
#include "fold/time_pipe.h"

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

static double later(double a, double b)
{
    return b > a ? b : a;
}

/* [Megatron-LM p2p_communication.py; deepspeed/runtime/pipe/p2p.py] */
bool pipe_blocks(const struct run *run)
{
    return run->schedule == SCHED_1F1B || run->schedule == SCHED_GPIPE;
}

/* [deepspeed/runtime/pipe/schedule.py, TrainSchedule.steps] */
bool pipe_takes_turns(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED && pipe_blocks(run);
}

uint64_t pipe_round(const struct run *run)
{
    return run_loops(run) ? run_round(run) : run->pp;
}

double pipe_simulated(const struct pipe *x, uint64_t micros, struct arena *a)
{
    struct pipe_run run;
    return pipe_run(&run, x, micros, a);
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

/* What a rank waits for of a micro-batch's messages, its own and others'. */
static double waits(const struct pipe *x, uint64_t rank)
{
    const struct run *run = x->run;
    const double sides = (rank > 0 ? 1 : 0) + (rank + 1 < run->pp ? 1 : 0);
    if (!pipe_blocks(run))
        return 0;
    return (pipe_takes_turns(run) ? 2 : 1) * sides * x->send;
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
    return sum + waits(x, rank);
}

/* Returns how long. */
static double busiest(uint64_t *rank, const struct pipe *x, enum when when)
{
    double longest = busy(x, 0, when);
    *rank = 0;
    for (uint64_t r = 1; r < x->run->pp; r++) {
        const double time = busy(x, r, when);
        *rank = time > longest ? r : *rank;
        longest = later(longest, time);
    }
    return longest;
}

uint64_t pipe_busiest(const struct pipe *x)
{
    uint64_t rank;
    busiest(&rank, x, ON_AVERAGE);
    return rank;
}

double pipe_busy(const struct pipe *x)
{
    uint64_t rank;
    return busiest(&rank, x, ON_AVERAGE);
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

/* All micro-batches there, then all back: the slowest stage decides each, and
 * what each more takes. Where stages take turns it waits for what arrives, too. */
static double there_and_back_pace(const struct pipe *x)
{
    const uint64_t pp = x->run->pp;
    const double held = pipe_takes_turns(x->run) ? x->send : 0;
    double there = 0, back = 0;
    for (uint64_t i = 0; i < pp; i++) {
        const struct pipe_pass p = stage_pass(x, i);
        there = fmax(there, p.forward + (i > 0 ? held : 0));
        back = fmax(back, p.input + p.weight + (i + 1 < pp ? held : 0));
    }
    return there + back;
}

static double there_and_back(const struct pipe *x)
{
    double sum = 0;
    for (uint64_t i = 0; i < x->run->pp; i++) {
        const struct pipe_pass p = stage_pass(x, i);
        sum += p.forward + p.input + p.weight;
    }
    return sum + (double)(x->run->grad_accum - 1) * there_and_back_pace(x);
}

/* 1F1B, if stage i never waits between its first backward and its last forward:
 * before it the first micro-batch goes to the end and returns, after it the last
 * one does, and those in flight at i are the difference. The slowest decides. A
 * message takes its time once of those, and of both stages between them where
 * they take turns. */
static double one_by_one(const struct pipe *x)
{
    const uint64_t pp = x->run->pp, m = x->run->grad_accum;
    double after = 0, longest = 0;
    for (uint64_t i = pp; i-- > 0;) {
        const struct pipe_pass p = stage_pass(x, i);
        const double one = p.forward + p.input + p.weight;
        const double between = (double)(m - min_u64(m, pp - i));
        longest = fmax(longest, after + between * busy(x, i, BETWEEN));
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
 * order, long messages in one that splits backward: a micro-batch takes more than
 * the busiest rank's time. */
static double pace(const struct pipe *x, const struct pipe_run *s)
{
    const uint64_t round = s->round, rounds = s->micros / round;
    uint64_t rank;
    if (x->run->schedule == SCHED_GPIPE)
        return there_and_back_pace(x);
    const double most = busiest(&rank, x, BETWEEN);
    const bool waits_on = x->run->schedule == SCHED_INTERLEAVED
                          || x->run->schedule == SCHED_ZB_H1;
    if (!waits_on || rounds < PACE_ROUNDS_RUN)
        return most;
    const double *done = &s->forward[rank * s->micros + (rounds - 1) * round];
    const uint64_t micros = PACE_ROUNDS * round;
    const double seen = (done[0] - *(done - micros)) / (double)micros;
    return seen > most * (1 + PACE_OFF) ? seen : most;
}

/* So many run, the rest at their pace. */
static double run_some(const struct pipe *x, uint64_t some, struct arena *a)
{
    const uint64_t m = x->run->grad_accum;
    uint64_t run = min_u64(m, some);
    struct pipe_run s;
    if (run_loops(x->run) && run < m) /* whole rounds, and a shorter last one */
        run = min_u64(m, run - run % run_round(x->run) + m % run_round(x->run));
    const double first = pipe_run(&s, x, run, a);
    if (first < 0 || run == m)
        return first;
    const uint64_t all = x->run->deferred_wgrads;
    const uint64_t deferred = all > run ? all - run : 0;
    const double later_s =
        deferred > 0 ? (double)deferred * deferred_pace(x) : 0;
    return first + later_s + (double)(m - run - deferred) * pace(x, &s);
}

/* Rounds, without chunks of as many micro-batches as there are ranks, after
 * which the pace is the busiest rank's: another one a few per cent less busy
 * decides before. */
enum { ROUNDS_SHORT = 2, ROUNDS = 5, ROUNDS_LONG = 64 };

/* A few are as soon run, and tell where stages wait for each other after all. */
enum { FORWARDS_FEW = 256 };

/* Messages that blocking stages wait for, over the shortest forward, and the
 * longest forward over that, from which on stages wait for each other between
 * their first backward and their last forward, too: below both the closed form is
 * within 1 % of 160,000 random schedules (tests/property/test_pipe.c). */
#define SENDS_LONG 0.02
#define STAGES_UNEVEN 2

static bool stages_wait(const struct pipe *x)
{
    double shortest = x->at[0].forward, longest = shortest;
    for (uint64_t i = 1; i < pipe_stages(x->run); i++) {
        shortest = fmin(shortest, x->at[i].forward);
        longest = fmax(longest, x->at[i].forward);
    }
    return x->send > SENDS_LONG * shortest
           || longest > STAGES_UNEVEN * shortest;
}

double pipe_closed(const struct pipe *x, struct arena *a)
{
    const uint64_t p = x->run->pp, m = x->run->grad_accum;
    switch (x->run->schedule) {
    case SCHED_NAIVE: return one_at_a_time(x);
    case SCHED_GPIPE: return there_and_back(x);
    case SCHED_ZB_H1:
    case SCHED_INTERLEAVED:
    case SCHED_ZB_INTERLEAVED:
    case SCHED_ZB_V:
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V: /* ZB-V's halves that are run again are uneven for long
                            */
        return stages_wait(x) || (x->remakes && x->run->schedule == SCHED_ZB_V)
                   ? pipe_time(x, a)
                   : run_some(x, ROUNDS * pipe_round(x->run), a);
    case SCHED_1F1B:
    case SCHEDULE_COUNT: break;
    }
    return m > max_u64(FORWARDS_FEW / p, ROUNDS_SHORT * p)
                   && x->run->deferred_wgrads == 0 && !stages_wait(x)
               ? one_by_one(x)
               : pipe_time(x, a);
}

double pipe_time(const struct pipe *x, struct arena *a)
{
    if (x->run->schedule == SCHED_NAIVE)
        return one_at_a_time(x);
    return run_some(
        x, max_u64(ROUNDS_LONG * x->run->pp, ROUNDS * pipe_round(x->run)), a);
}
