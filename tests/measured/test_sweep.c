/*
 * Which engine a published sweep of layouts may have had, by what fits: every
 * layout that ran must (sweep.csv). What was left out says less: in a third of it
 * a larger micro-batch ran in the same layout. No time is looked at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/report_data.h"
#include "unit/estimate.h"

#include "base/banned.h"

enum { LINE_LEN = 512, LAYOUTS_MAX = 160, NUMBER_LEN = 24, COLUMNS = 9 };

enum column { HIDDEN, LAYERS, HEADS, GPUS, BATCH, TP, PP, MICRO, RAN };

struct layout {
    unsigned n[COLUMNS];
};

static struct layout layouts[LAYOUTS_MAX];
static size_t n_layouts;

static int read_layouts(void **state)
{
    char line[LINE_LEN];
    (void)state;
    FILE *f = fopen(MEMPLAN_SOURCE_DIR "/tests/measured/sweep.csv", "rb");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        struct layout x;
        char *at = line;
        if (line[0] < '0' || line[0] > '9')
            continue;
        for (int i = 0; i < COLUMNS; i++, at++)
            x.n[i] = (unsigned)strtoul(at, &at, 10);
        assert_true(n_layouts < LAYOUTS_MAX);
        layouts[n_layouts++] = x;
    }
    fclose(f);
    return 0;
}

static memplan_model *gpt(const struct layout *x)
{
    char text[LINE_LEN];
    memplan_model *model = NULL;
    const int n = snprintf(
        text, sizeof text,
        "{\"model_type\": \"decoder\", \"num_hidden_layers\": %u, "
        "\"hidden_size\": %u, \"num_attention_heads\": %u, "
        "\"intermediate_size\": %u, \"vocab_size\": 50257, \"norm\": "
        "\"layernorm\", \"gated_mlp\": false, \"hidden_act\": \"gelu\", "
        "\"position_embedding\": \"learned\", \"max_position_embeddings\": 2048, "
        "\"attention_bias\": true, \"attention_out_bias\": true, \"mlp_bias\": "
        "true, \"tie_word_embeddings\": true, \"hidden_dropout\": 0.1, "
        "\"attention_dropout\": 0.1}",
        x->n[LAYERS], x->n[HIDDEN], x->n[HEADS], 4 * x->n[HIDDEN]);
    assert_true(n > 0 && (size_t)n < sizeof text);
    assert_int_equal(
        memplan_model_parse(&model, text, (size_t)n, "gpt", NULL, NULL),
        MEMPLAN_OK);
    return model;
}

struct way {
    const char *framework, *engine, *zero, *precision;
};

static bool fits(const struct way *way, const struct layout *x)
{
    static const struct {
        const char *key;
        enum column column;
    } keys[] = { { "gpus", GPUS },
                 { "global_batch", BATCH },
                 { "tp", TP },
                 { "pp", PP },
                 { "micro_batch", MICRO } };
    enum { KEYS = sizeof keys / sizeof keys[0], SAID = 22 };
    char number[KEYS][NUMBER_LEN];
    const char *pairs[SAID + 2 * KEYS + 1] = {
        "implementation",
        "megatron-local",
        "framework",
        way->framework,
        "gpu",
        "a100-80gb",
        "seq_len",
        "2048",
        "attention",
        "eager",
        "recompute",
        "full",
        "optimizer",
        "adamw",
        "engine",
        way->engine,
        "zero",
        way->zero,
        "precision",
        way->precision,
        "sequence_parallel",
        "false",
    };
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(number[i], sizeof number[i], "%u", x->n[keys[i].column]);
        pairs[SAID + 2 * i] = keys[i].key;
        pairs[SAID + 2 * i + 1] = number[i];
    }
    memplan_report *report = estimate_model(gpt(x), pairs);
    const bool is = report->memory.fits;
    memplan_report_free(report);
    return is;
}

/* A larger micro-batch of this layout ran. */
static bool larger_ran(const struct layout *x)
{
    for (size_t i = 0; i < n_layouts; i++) {
        const struct layout *y = &layouts[i];
        if (y->n[RAN] == 1 && y->n[MICRO] > x->n[MICRO]
            && memcmp(y->n, x->n, MICRO * sizeof *x->n) == 0)
            return true;
    }
    return false;
}

enum { ALL_RAN = 108, ALL_LEFT = 36, LARGEST_LEFT = 4, LARGEST = 12288 };

static void what_was_left_out_is_no_matter_of_memory_alone(void **state)
{
    size_t ran = 0, left = 0, largest = 0, smaller = 0;
    (void)state;
    for (size_t i = 0; i < n_layouts; i++) {
        const struct layout *x = &layouts[i];
        ran += x->n[RAN] == 1;
        left += x->n[RAN] == 0;
        largest += x->n[RAN] == 0 && x->n[HIDDEN] == LARGEST;
        smaller += x->n[RAN] == 0 && larger_ran(x);
    }
    assert_int_equal(ran, ALL_RAN);
    assert_int_equal(left, ALL_LEFT);
    assert_int_equal(largest, LARGEST_LEFT);
    assert_int_equal(smaller, 12);
}

/* By five of these ways all that ran fits; what was left out of the largest model,
 * where states are whole on each replica, does not, or by a hair. */
static void what_fits_by_each_way(void **state)
{
#define FORK "megatron-deepspeed"
    static const struct {
        struct way way;
        unsigned ran, left, largest;
    } ways[] = {
        { { FORK, "deepspeed", "0", "fp16-mixed" }, 102, 31, 0 },
        { { FORK, "deepspeed", "1", "fp16-mixed" }, ALL_RAN, ALL_LEFT, 4 },
        { { FORK, "deepspeed", "0", "bf16-mixed" }, ALL_RAN, 35, 3 },
        { { FORK, "megatron", "0", "fp16-mixed" }, 101, 29, 0 },
        { { FORK, "megatron", "0", "bf16-mixed" }, ALL_RAN, 30, 0 },
        /* as the fork has them since July 2023 */
        { { "megatron", "megatron", "0", "fp16-mixed" }, ALL_RAN, 31, 1 },
        { { "megatron", "megatron", "0", "bf16-mixed" }, ALL_RAN, 30, 0 },
    };
#undef FORK
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        unsigned ran = 0, left = 0, largest = 0;
        for (size_t k = 0; k < n_layouts; k++) {
            const unsigned *n = layouts[k].n;
            if (!fits(&ways[i].way, &layouts[k]))
                continue;
            ran += n[RAN] == 1;
            left += n[RAN] == 0;
            largest += n[RAN] == 0 && n[HIDDEN] == LARGEST;
        }
        if (ran != ways[i].ran || left != ways[i].left
            || largest != ways[i].largest)
            fail_msg("%s, %s, ZeRO %s, %s: %u that ran fit, %u left out, %u "
                     "of the largest",
                     ways[i].way.framework, ways[i].way.engine,
                     ways[i].way.zero, ways[i].way.precision, ran, left,
                     largest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_left_out_is_no_matter_of_memory_alone),
        cmocka_unit_test(what_fits_by_each_way),
    };
    return cmocka_run_group_tests(tests, read_layouts, NULL);
}
