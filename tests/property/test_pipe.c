/*
 * A pipeline by formula, and event by event agree over random layouts
 * of every schedule, stages of unequal length among them.
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

enum { TRIALS = 1000, PIPE_STAGES_MAX = 128 };

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
    struct run r = { .schedule = schedules[pick(0, 6)], .vpp = 1 };
    r.pp = (uint64_t)2 << pick(0, 3);
    if (r.schedule == SCHED_INTERLEAVED)
        r.vpp = pick(2, 6);
    r.grad_accum = r.pp * pick(1, 12);
    if (r.schedule == SCHED_DUALPIPE || r.schedule == SCHED_DUALPIPE_V
        || r.schedule == SCHED_ZB_V)
        r.grad_accum = 2 * r.pp * pick(1, 6);
    return r;
}

/* Layers alike, but for the first and the last stage's. */
static void random_stages(struct pipe *x, struct pipe_pass *at)
{
    const uint64_t n = pipe_stages(x->run);
    const double f = share(0.5, 2), i = f * share(0.9, 1.5),
                 w = f * share(0.6, 1.1);
    const double first = share(1, 1.1), last = share(0.9, 1.5);
    for (uint64_t k = 0; k < n; k++) {
        const double times = k == 0 ? first : k + 1 == n ? last : 1;
        at[k] = (struct pipe_pass){ f * times, i * times, w * times };
    }
    x->at = at;
    x->send = share(0, 0.02) * f;
}

static void test_formula_is_simulation(void **state)
{
    (void)state;
    struct arena a;
    /* what the formula is off by at most, so far */
    static const double limit[SCHEDULE_COUNT] = {
        [SCHED_1F1B] = 0.06,        [SCHED_GPIPE] = 0.01,
        [SCHED_INTERLEAVED] = 0.03, [SCHED_ZB_H1] = 0.05,
        [SCHED_ZB_V] = 0.1,         [SCHED_DUALPIPE] = 0.5,
        [SCHED_DUALPIPE_V] = 0.2
    };
    size_t bad = 0;
    arena_init(&a, NULL);
    for (int i = 0; i < TRIALS; i++) {
        struct pipe_pass at[PIPE_STAGES_MAX];
        const struct run run = random_run();
        struct pipe x = { .run = &run };
        random_stages(&x, at);
        arena_rewind(&a);
        const double simulated = pipe_time(&x, &a);
        const double formula = pipe_closed(&x);
        const double error = formula / simulated - 1;
        assert_true(simulated
                    >= (double)run.grad_accum * pipe_busy(&x) * 0.999);
        if (fabs(error) > limit[run.schedule] && bad++ < 40)
            print_error("schedule %d, pp %d, vpp %d, m %d: %+.2f %%\n",
                        (int)run.schedule, (int)run.pp, (int)run.vpp,
                        (int)run.grad_accum, 100 * error);
    }
    arena_release(&a);
    assert_int_equal(bad, 0);
}

/* Known by hand: p - 1 more passes than micro-batches. */
static void test_equal_stages(void **state)
{
    (void)state;
    struct arena a;
    struct pipe_pass at[8];
    arena_init(&a, NULL);
    for (int k = 0; k < 8; k++)
        at[k] = (struct pipe_pass){ 1, 1, 1 };
    struct run run = { .pp = 8, .vpp = 1, .grad_accum = 16 };
    const struct pipe x = { .run = &run, .at = at };
    run.schedule = SCHED_1F1B;
    assert_true(fabs(pipe_simulated(&x, 16, &a) - 3 * (16 + 7)) < 1e-9);
    assert_true(fabs(pipe_closed(&x) - 3 * (16 + 7)) < 1e-9);
    run.schedule = SCHED_GPIPE;
    assert_true(fabs(pipe_simulated(&x, 16, &a) - 3 * (16 + 7)) < 1e-9);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_stages),
        cmocka_unit_test(test_formula_is_simulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
