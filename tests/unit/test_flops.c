/*
 * FLOPs of published models by the convention of each publisher:
 * docs/method.md, eq. flops, has the table and the sources. The tolerance is
 * what the printed digits leave open, or the difference that the table
 * explains.
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

#include "estimate.h"
#include "plan/report_data.h"
#include "json/json.h"

#include "base/banned.h"

#ifndef MEMPLAN_SOURCE_DIR
#define MEMPLAN_SOURCE_DIR "."
#endif

enum convention { CAUSAL, FULL, FORWARD_MACS };

struct published {
    const char *model, *framework, *seq_len;
    enum convention convention;
    double per;  /* tokens that the figure is of */
    double want; /* FLOPs, or multiply-adds */
    double tolerance;
};

/* 72 B s L h^2 (1 + s / (6 h) + V / (12 h L)), a token [Narayanan et al. 2021,
 * equation 3, without recomputation]. */
#define MEGATRON(l, h, v)                                                      \
    (72.0 * (l) * (h) * (h)                                                    \
     * (1 + 2048.0 / (6.0 * (h)) + (v) / (12.0 * (h) * (l))))

static const struct published all[] = {
    { "llama-3.1-405b", "megatron", "8192", CAUSAL, 328, 827e12, 2e-3 },
    { "llama-3-8b", "megatron", "8192", CAUSAL, 14451, 744e12, 7e-4 },
    { "llama-3-70b", "megatron", "8192", CAUSAL, 1633, 734e12, 1e-3 },
    { "llama-3-70b", "megatron", "4096", CAUSAL, 1638, 710e12, 1e-3 },
    /* torchtitan: 6 (N - N_embedding) + 12 L a d s; again with the norms */
    { "llama-3-8b", "torchtitan", "8192", FULL, 1,
      6 * (8030261248.0 - 525336576 - 266240) + 12.0 * 32 * 4096 * 8192, 1e-9 },
    { "megatron-175b", "megatron", "2048", FULL, 1, MEGATRON(96, 12288, 51200),
      1e-4 },
    { "megatron-530b", "megatron", "2048", FULL, 1, MEGATRON(105, 20480, 51200),
      1e-4 },
    { "megatron-1t", "megatron", "2048", FULL, 1, MEGATRON(128, 25600, 51200),
      1e-4 },
    { "megatron-22b", "megatron", "2048", FULL, 1, MEGATRON(48, 6144, 51200),
      1e-4 },
    /* 6 N + 12 L H Q T; N has norms and biases, which multiply nothing */
    { "gpt2", "hf", "1024", FULL, 1, 855166464.0 - 6 * 121344.0, 1e-9 },
    { "resnet-18", "hf", NULL, FORWARD_MACS, 1, 1.814e9, 5e-4 },
    { "resnet-34", "hf", NULL, FORWARD_MACS, 1, 3.664e9, 5e-4 },
    { "resnet-50", "hf", NULL, FORWARD_MACS, 1, 4.089e9, 5e-4 },
    { "resnet-101", "hf", NULL, FORWARD_MACS, 1, 7.801e9, 5e-4 },
    { "resnet-152", "hf", NULL, FORWARD_MACS, 1, 11.514e9, 5e-4 },
    { "vit-large-patch16-224", "hf", NULL, FORWARD_MACS, 197, 61.555e9, 5e-4 },
    { "dit-s-2", "hf", NULL, FORWARD_MACS, 256, 6.06e9, 2e-3 },
    { "dit-b-2", "hf", NULL, FORWARD_MACS, 256, 23.01e9, 2e-3 },
    { "dit-l-2", "hf", NULL, FORWARD_MACS, 256, 80.71e9, 2e-3 },
    { "dit-xl-2", "hf", NULL, FORWARD_MACS, 256, 118.64e9, 2e-3 },
};

static double figure(const struct published *row)
{
    const char *const pairs[] = { "framework", row->framework,
                                  row->seq_len ? "seq_len" : NULL, row->seq_len,
                                  NULL };
    memplan_report *r = estimate(row->model, pairs);
    const struct flops_result f = r->flops;
    memplan_report_free(r);
    switch (row->convention) {
    case CAUSAL: return f.model_causal;
    case FULL: return f.model_full;
    case FORWARD_MACS: return f.forward_full / 2;
    }
    return 0;
}

static void test_published(void **state)
{
    (void)state;
    unsigned bad = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const double got = all[i].per * figure(&all[i]);
        const double error = got / all[i].want - 1;
        print_message("%-22s %.6g, published %.6g: %+.3f %%\n", all[i].model,
                      got, all[i].want, 100 * error);
        bad += fabs(error) > all[i].tolerance;
    }
    assert_int_equal(bad, 0);
}

/* ---- against PyTorch's own counter (tests/oracle/flops.py) ---- */

static double forward_of(const char *config, size_t len, uint64_t seq)
{
    memplan_model *m = NULL;
    memplan_setup *setup = NULL;
    memplan_report *r = NULL;
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)seq);
    assert_int_equal(memplan_model_parse(&m, config, len, "golden", NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_set(setup, "seq_len", text, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_set(setup, "attention", "eager", NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&r, m, setup, NULL, NULL), MEMPLAN_OK);
    const double forward = r->flops.forward_full * (double)seq;
    memplan_report_free(r);
    memplan_setup_free(setup);
    memplan_model_free(m);
    return forward;
}

static bool check_counted(const char *line, size_t len)
{
    struct arena a;
    struct diag d;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const struct json *row = json_parse(&a, line, len, &d);
    assert_non_null(row);
    const size_t at = json_member(row, "config")->offset;
    const double want = json_member(row, "forward")->number;
    const double got =
        forward_of(line + at, json_value_length(line, len, at),
                   (uint64_t)json_member(row, "seq_len")->number);
    const bool good = fabs(got / want - 1) < 1e-9;
    if (!good)
        print_error("%.0f, counted %.0f: %.*s\n", got, want, (int)len, line);
    arena_release(&a);
    return good;
}

static void test_counted(void **state)
{
    (void)state;
    static char text[1 << 16];
    FILE *f = fopen(MEMPLAN_SOURCE_DIR "/tests/golden/flops.jsonl", "rb");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    assert_true(n < sizeof(text) - 1);
    unsigned lines = 0, bad = 0;
    const char *line = text;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        bad += !check_counted(line, (size_t)(end - line));
        lines++;
    }
    print_message("%u families counted\n", lines);
    assert_int_equal(bad, 0);
    assert_true(lines >= 43);
}

/* However a rank's part is cut, the model's FLOPs a token are the same. */
static void test_parallel(void **state)
{
    (void)state;
    static const char *const models[] = { "mixtral-8x7b", "deepseek-v2-lite" };
    static const char *const layouts[][10] = {
        { "ep", "8", NULL },
        { "ep", "8", "moe_imbalance", "1.5", NULL },
        { "ep", "8", "recompute", "full", NULL },
        { "ep", "4", "etp", "2", NULL },
        { "tp", "2", "ep", "4", NULL },
        { "cp", "2", "ep", "4", NULL },
    };
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        memplan_report *whole =
            estimate(models[m], (const char *const[]){ "framework", "megatron",
                                                       "gpus", "8", NULL });
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            const char *pairs[14] = { "framework", "megatron", "gpus", "8" };
            memcpy(&pairs[4], layouts[i], sizeof layouts[i]);
            memplan_report *r = estimate(models[m], pairs);
            assert_true(r->flops.model_causal == whole->flops.model_causal);
            assert_true(r->flops.model_full == whole->flops.model_full);
            memplan_report_free(r);
        }
        memplan_report_free(whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_parallel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
