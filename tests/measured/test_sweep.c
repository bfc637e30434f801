/*
 * Which engine a published sweep of layouts had, by what fits: every layout that
 * ran must, and what was left out should not (sweep.csv). No time is looked at.
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

enum { LINE_LEN = 512, LAYOUTS_MAX = 128, NUMBER_LEN = 24, COLUMNS = 9 };

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
    const char *engine, *zero, *precision;
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
        "megatron-deepspeed",
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

/* How many that ran, or were left out, fit. */
static unsigned how_many_fit(const struct way *way, unsigned ran)
{
    unsigned n = 0;
    for (size_t i = 0; i < n_layouts; i++)
        n += layouts[i].n[RAN] == ran && fits(way, &layouts[i]);
    return n;
}

/* Megatron's own engine in bf16 is the one by which all that ran fits, and not all
 * of what was left out: 16 bits without ZeRO are too large for some that ran, and
 * with optimizer states in parts everything fits, of what was left out, too. */
static void one_way_fits_what_ran(void **state)
{
    enum { ALL_RAN = 108, ALL_LEFT = 5 };
    static const struct {
        struct way way;
        unsigned ran, left;
    } ways[] = {
        { { "megatron", "0", "bf16-mixed" }, ALL_RAN, 2 },
        { { "megatron", "0", "fp16-mixed" }, 104, 1 },
        { { "deepspeed", "0", "fp16-mixed" }, 102, 2 },
        { { "deepspeed", "0", "bf16-mixed" }, ALL_RAN, ALL_LEFT },
        { { "deepspeed", "1", "fp16-mixed" }, ALL_RAN, ALL_LEFT },
    };
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const unsigned ran = how_many_fit(&ways[i].way, 1);
        const unsigned left = how_many_fit(&ways[i].way, 0);
        if (ran != ways[i].ran || left != ways[i].left)
            fail_msg(
                "%s, ZeRO %s, %s: %u of %d that ran fit, %u of %d left out",
                ways[i].way.engine, ways[i].way.zero, ways[i].way.precision,
                ran, ALL_RAN, left, ALL_LEFT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_way_fits_what_ran),
    };
    return cmocka_run_group_tests(tests, read_layouts, NULL);
}
