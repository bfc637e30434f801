/*
 * Predictions against published figures of real runs (*.jsonl, each row with
 * its source). docs/accuracy.md shows all of them; here a group's median error
 * must not grow past what it was.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

enum { TEXT_MAX = 1 << 20 };

static char text[TEXT_MAX];
static memplan_score *score;

static void read_rows(const char *name)
{
    char path[512];
    memplan_error slot = { MEMPLAN_OK, 0, 0, 0, "", "", "", "" };
    memplan_errors errs = { &slot, 1, 0 };
    snprintf(path, sizeof path, "%s/tests/measured/%s.jsonl",
             MEMPLAN_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t len = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_true(len > 0 && len < sizeof text);
    if (memplan_score_parse(score, text, len, &errs) != MEMPLAN_OK)
        fail_msg("%s:%u: %s", path, (unsigned)slot.line, slot.message);
}

static int read_all(void **state)
{
    (void)state;
    assert_int_equal(memplan_score_new(&score, NULL, NULL), MEMPLAN_OK);
    read_rows("memory");
    read_rows("memory-zero");
    read_rows("memory-gpu");
    read_rows("memory-drawn");
    read_rows("memory-fms");
    read_rows("memory-unseen");
    read_rows("fits");
    read_rows("throughput");
    read_rows("throughput-vtrain");
    read_rows("throughput-unseen");
    return 0;
}

static int release(void **state)
{
    (void)state;
    memplan_score_free(score);
    return 0;
}

/* The bounds are the medians of the day that each was written, rounded up. */
static void medians_have_not_grown(void **state)
{
    static const struct {
        const char *group, *metric;
        double most;
    } bounds[] = {
        { "megatron-goldens", "peak_allocated", 0.025 },
        { "megatron-goldens", "steady_allocated", 0.07 },
        { "simumax-b200", "peak_allocated", 0.02 },
        { "zero-state-only", "steady_allocated", 0.01 },
        { "oracle-gpu", "peak_allocated", 0.0002 },
        { "oracle-gpu", "steady_allocated", 0.0002 },
        { "oracle-gpu", "peak_reserved", 0.006 },
        { "oracle-gpu", "device_total", 0.007 },
        { "fms-acceleration", "peak_allocated", 0.005 },
        { "fms-acceleration", "steady_allocated", 0.005 },
        { "peft", "peak_reserved", 0.02 },
        { "peft", "steady_allocated", 0.06 },
        { "zero-ml-engineering", "peak_reserved", 0.06 },
        { "qwen", "device_total", 0.12 }, /* with GPTQ and full modules */
        { "nemo-launcher", "tokens_per_s_per_gpu", 0.04 },
        { "nemo-2022", "tokens_per_s_per_gpu", 0.03 },
        { "nemo-2022-t5", "step_time_s", 0.04 },
        { "nemo-2022-bert", "step_time_s", 0.05 },
        { "nemo-2024", "tokens_per_s_per_gpu", 0.03 },
        { "nemo-long-context", "tflops_per_gpu", 0.04 },
        { "fms-acceleration", "tokens_per_s_per_gpu", 0.05 },
    };
    unsigned over = 0;
    (void)state;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        double median = 0;
        assert_int_equal(memplan_score_median(&median, score, bounds[i].group,
                                              bounds[i].metric),
                         MEMPLAN_OK);
        if (median <= bounds[i].most)
            continue;
        print_error("%s, %s: %.4f, was at most %.4f\n", bounds[i].group,
                    bounds[i].metric, median, bounds[i].most);
        over++;
    }
    assert_int_equal(over, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians_have_not_grown),
    };
    return cmocka_run_group_tests(tests, read_all, release);
}
