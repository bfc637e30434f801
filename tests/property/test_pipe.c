/*
 * A pipeline by formula, and event by event agree over random layouts
 * of every schedule, stages of unequal length among them; and orders in short
 * are the orders, and take as long to the last bit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fold/schedule.h"
#include "fold/time.h"

#include "base/banned.h"

enum { TRIALS = 4000, PIPE_STAGES_MAX = 128 };

static uint64_t state_of_random = 20260;

static uint64_t pick(uint64_t low, uint64_t high)
{
    state_of_random ^= state_of_random << 13;
    state_of_random ^= state_of_random >> 7;
    state_of_random ^= state_of_random << 17;
    return low + state_of_random % (high - low + 1);
}

static double share(double low, double high)
{
    return low + (high - low) * (double)pick(0, 1000000) / 1e6;
}

static struct run random_run(void)
{
    static const enum schedule schedules[] = {
        SCHED_1F1B, SCHED_GPIPE,    SCHED_INTERLEAVED, SCHED_ZB_H1,
        SCHED_ZB_V, SCHED_DUALPIPE, SCHED_DUALPIPE_V
    };
    struct run r = { .schedule =
                         pick(0, 1) == 0 ? SCHED_1F1B : schedules[pick(0, 6)],
                     .vpp = 1 };
    const bool any = r.schedule == SCHED_1F1B || r.schedule == SCHED_GPIPE
                     || r.schedule == SCHED_ZB_H1;
    r.pp = any ? pick(2, 32) : (uint64_t)2 << pick(0, 3);
    if (r.schedule == SCHED_INTERLEAVED)
        r.vpp = pick(2, 6);
    r.grad_accum = any ? pick(1, 600) : r.pp * pick(1, 12);
    if (r.schedule == SCHED_DUALPIPE || r.schedule == SCHED_DUALPIPE_V
        || r.schedule == SCHED_ZB_V)
        r.grad_accum = 2 * r.pp * pick(1, 6);
    if ((r.schedule == SCHED_1F1B || r.schedule == SCHED_GPIPE)
        && pick(0, 1) == 0)
        r.engine = ENGINE_DEEPSPEED;
    if (run_folds(&r) && pick(0, 1) == 0) {
        r.impl = IMPL_TORCHTITAN;
        r.engine = ENGINE_FSDP2;
    }
    return r;
}

/* Layers alike, but for the first and the last stage's; a third of the time
 * none is like another. */
static void random_stages(struct pipe *x, struct pipe_pass *at)
{
    const uint64_t n = pipe_stages(x->run);
    const double f = share(0.5, 2), i = f * share(0.9, 1.5),
                 w = f * share(0.6, 1.1);
    const double first = share(1, 1.1), last = share(0.9, 4);
    const double again = run_torch_pipelines(x->run) ? share(0, 9 * f) : 0;
    const bool uneven = pick(0, 2) == 0;
    for (uint64_t k = 0; k < n; k++) {
        const double times = uneven       ? share(0.3, 2.5)
                             : k == 0     ? first
                             : k + 1 == n ? last
                                          : 1;
        at[k] = (struct pipe_pass){ f * times, i * times, w * times,
                                    k > 0 ? again * times : 0 };
    }
    x->at = at;
    x->remakes = again > 0;
    x->send = share(0, 0.15) * f;
}

static void test_formula_is_simulation(void **state)
{
    (void)state;
    struct arena a;
    const double limit = 0.01;
    size_t bad = 0;
    arena_init(&a, NULL);
    for (int i = 0; i < TRIALS; i++) {
        struct pipe_pass at[PIPE_STAGES_MAX];
        const struct run run = random_run();
        struct pipe x = { .run = &run };
        random_stages(&x, at);
        arena_rewind(&a);
        const double simulated = pipe_simulated(&x, run.grad_accum, &a);
        const double formula = pipe_closed(&x, &a);
        const double error = formula / simulated - 1;
        assert_true(simulated
                    >= (double)run.grad_accum * pipe_busy(&x) * 0.999);
        if (fabs(error) > limit && bad++ < 40)
            print_error("schedule %d, pp %d, vpp %d, m %d: %+.2f %%\n",
                        (int)run.schedule, (int)run.pp, (int)run.vpp,
                        (int)run.grad_accum, 100 * error);
    }
    arena_release(&a);
    assert_int_equal(bad, 0);
}

/* Two stages, two micro-batches; 1 forward and 2 back, 0.25 a send. Before the
 * first one's backward lie its forwards (2), a send there and one back; after it,
 * of the second one, forward and backward of the last stage and its own: in all
 * 9, and what of the sends is in between. */
static void test_turns_by_hand(void **state)
{
    (void)state;
    const double send = 0.25;
    const struct pipe_pass at[] = { { 1, 1, 1, 0 }, { 1, 1, 1, 0 } };
    struct run run = { .schedule = SCHED_1F1B,
                       .vpp = 1,
                       .pp = 2,
                       .grad_accum = 2,
                       .engine = ENGINE_MEGATRON };
    const struct pipe x = { .run = &run, .at = at, .send = send };
    struct arena a;
    arena_init(&a, NULL);
    /* the first gradient and the second hidden states cross */
    assert_true(fabs(pipe_simulated(&x, 2, &a) - (9 + 3 * send)) < 1e-12);
    run.engine = ENGINE_DEEPSPEED;
    assert_true(fabs(pipe_simulated(&x, 2, &a) - (9 + 4 * send)) < 1e-12);
    assert_true(fabs(pipe_busy(&x) - (3 + 2 * send)) < 1e-12);
    arena_release(&a);
}

/* GPipe's slowest forward and slowest backward are two stages': of more
 * micro-batches than are run each takes as long as both. The second stage, which
 * is slowest back, waits for one send of each, or for two by turns. */
static void test_gpipe_goes_on(void **state)
{
    (void)state;
    const double send = 0.25, once = 4 + 4 + 3 + 4 * send;
    const struct pipe_pass at[] = { { 2, 1, 1, 0 },
                                    { 1, 2, 1, 0 },
                                    { 1, 1, 1, 0 } };
    struct run run = {
        .schedule = SCHED_GPIPE, .vpp = 1, .pp = 3, .grad_accum = 1000
    };
    const struct pipe x = { .run = &run, .at = at, .send = send };
    struct arena a;
    arena_init(&a, NULL);
    for (int turns = 0; turns < 2; turns++) {
        run.engine = turns ? ENGINE_DEEPSPEED : ENGINE_MEGATRON;
        const double each = 2 + send + 3 + (turns ? 2 : 1) * send;
        const double all = once + 999 * each;
        assert_true(fabs(pipe_simulated(&x, run.grad_accum, &a) - all) < 1e-6);
        assert_true(fabs(pipe_time(&x, &a) - all) < 1e-6);
        assert_true(fabs(pipe_closed(&x, &a) - all) < 1e-6);
    }
    arena_release(&a);
}

/* ---- orders in short ---- */

/* Steps of all ranks, each once. */
static struct rank_order *plain_orders(const struct run *run, struct arena *a)
{
    const size_t room = (size_t)schedule_room(run, run->grad_accum);
    struct rank_order *all = ARENA_ROOM(a, struct rank_order, (size_t)run->pp);
    assert_non_null(all);
    for (uint64_t r = 0; r < run->pp; r++) {
        struct step *step = ARENA_ROOM(a, struct step, room);
        assert_non_null(step);
        const size_t n = schedule_steps(step, run, r, run->grad_accum);
        assert_true(n <= room);
        all[r] = (struct rank_order){ .step = step,
                                      .refrain = { { (uint32_t)n, 1 } },
                                      .n = 1,
                                      .steady = REFRAINS_MAX };
    }
    return all;
}

static struct rank_order *short_orders(const struct run *run, struct arena *a)
{
    const size_t room = (size_t)schedule_short_room(run, run->grad_accum);
    struct rank_order *all = ARENA_ROOM(a, struct rank_order, (size_t)run->pp);
    assert_non_null(all);
    for (uint64_t r = 0; r < run->pp; r++) {
        all[r].step = ARENA_ROOM(a, struct step, room);
        assert_non_null(all[r].step);
        schedule_short(&all[r], run, r, run->grad_accum);
        assert_true(all[r].n <= REFRAINS_MAX);
    }
    return all;
}

/* Whether the one, sung, is the other one's steps. */
static bool says_the_same(const struct rank_order *sung,
                          const struct rank_order *plain, const struct run *run)
{
    const uint32_t by = schedule_is_dual(run) ? 2 : 1;
    const struct step *from = sung->step, *want = plain->step;
    const struct step *end = want + plain->refrain->steps;
    for (uint32_t i = 0; i < sung->n; from += sung->refrain[i++].steps)
        for (uint32_t t = 0; t < sung->refrain[i].times; t++)
            for (uint32_t k = 0; k < sung->refrain[i].steps; k++, want++)
                if (want == end || from[k].kind != want->kind
                    || from[k].chunk != want->chunk
                    || from[k].later != want->later
                    || from[k].beside != want->beside
                    || from[k].micro + t * by != want->micro)
                    return false;
    return want == end;
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Each rank's, of all micro-batches; how long all take, by either; and so many
 * of them, out of orders of more. */
static void test_orders_in_short(void **state)
{
    (void)state;
    struct arena a;
    unsigned shorter = 0, cut = 0;
    arena_init(&a, NULL);
    for (int i = 0; i < TRIALS; i++) {
        struct pipe_pass at[PIPE_STAGES_MAX];
        struct run run = random_run();
        if (!run_splits_backward(&run))
            continue;
        struct pipe x = { .run = &run };
        random_stages(&x, at);
        arena_rewind(&a);
        const struct rank_order *plain = plain_orders(&run, &a);
        const struct rank_order *sung = short_orders(&run, &a);
        for (uint64_t r = 0; r < run.pp; r++) {
            assert_true(says_the_same(&sung[r], &plain[r], &run));
            shorter += sung[r].n > 1;
        }
        x.order = plain;
        const double want = pipe_simulated(&x, run.grad_accum, &a);
        x.order = NULL;
        assert_true(same_bits(pipe_simulated(&x, run.grad_accum, &a), want));
        x.order = sung;
        assert_true(same_bits(pipe_simulated(&x, run.grad_accum, &a), want));
        if (!schedule_is_short(&run) || run.grad_accum < 2 * run.pp + 4)
            continue;
        const uint64_t fewer = 2 * pick(run.pp, run.grad_accum / 2);
        const double some = pipe_simulated(&x, fewer, &a);
        x.order = NULL;
        assert_true(same_bits(pipe_simulated(&x, fewer, &a), some));
        cut += fewer < run.grad_accum;
    }
    arena_release(&a);
    assert_true(shorter > 0 && cut > 0);
}

/* ---- published ---- */

/* What the busiest rank waits, of stages alike that pass nothing on. */
static double bubble(enum schedule schedule, uint64_t p, uint64_t v, uint64_t m,
                     struct pipe_pass pass)
{
    struct arena a;
    struct pipe_pass at[PIPE_STAGES_MAX];
    const struct run run = {
        .schedule = schedule, .pp = p, .vpp = v, .grad_accum = m
    };
    const struct pipe x = { .run = &run, .at = at };
    for (size_t k = 0; k < pipe_stages(&run); k++)
        at[k] = pass;
    arena_init(&a, NULL);
    const double all = pipe_simulated(&x, m, &a);
    arena_release(&a);
    return all - (double)m * pipe_busy(&x);
}

static void near(double got, double published)
{
    if (fabs(got - published) > 1e-9)
        print_error("%g, not %g\n", got, published);
    assert_true(fabs(got - published) <= 1e-9);
}

/* As their papers have it: p - 1 passes [GPipe, PipeDream]; a chunk's, not a
 * rank's [Narayanan et al. 2021]; (p - 1)(F + B - 2 W) [Qi et al. 2024, table
 * 2]; (p/2 - 1)(F&B + B - 3 W) [deepseek-ai/DualPipe, README]. */
static void test_published_bubbles(void **state)
{
    (void)state;
    const struct pipe_pass one = { 1, 1, 1, 0 };
    const struct pipe_pass other = { 1, 1.25, 0.75, 0 };
    near(bubble(SCHED_1F1B, 8, 1, 16, other), 7 * 3);
    near(bubble(SCHED_GPIPE, 8, 1, 16, other), 7 * 3);
    near(bubble(SCHED_INTERLEAVED, 8, 4, 16, other), 7 * 3);
    near(bubble(SCHED_ZB_H1, 8, 1, 16, one), 7 * (1 + 2 - 2));
    near(bubble(SCHED_DUALPIPE, 8, 1, 20, one), 3 * (3 + 2 - 3));
    near(bubble(SCHED_DUALPIPE, 8, 1, 40, one), 3 * (3 + 2 - 3));
    /* none: the last rank begins so much later than the first */
    near(bubble(SCHED_ZB_V, 8, 1, 16, one), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_bubbles),
        cmocka_unit_test(test_formula_is_simulation),
        cmocka_unit_test(test_turns_by_hand),
        cmocka_unit_test(test_gpipe_goes_on),
        cmocka_unit_test(test_orders_in_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
