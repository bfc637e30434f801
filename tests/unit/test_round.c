/*
 * What a report says, said to memplan again: a change that is shown needs what
 * the command that has it needs, and the setup that is echoed is the setup.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "estimate.h"

#include "plan/report_data.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- changes ---- */

enum { PAIRS_MAX = 12 };

static const struct setting {
    const char *model;
    const char *pairs[PAIRS_MAX + 1];
} tight[] = {
    { "qwen3-next-80b-a3b", { "gpus", "64", "zero", "3" } },
    { "llama-7b", { "gpus", "8", "gpu", "a100-80gb" } },
    { "llama-7b",
      { "gpus", "2", "zero", "2", "gpu", "a100-40gb", "fast", "true" } },
    { "llama-13b", { "dp", "8", "zero", "1", "micro_batch", "4" } },
    { "llama-13b",
      { "gpus", "8", "zero", "3", "global_batch", "8", "seq_len", "8192", "gpu",
        "a100-40gb" } },
    { "llama-3-70b", { "framework", "fsdp", "gpus", "8" } },
    { "llama-7b",
      { "precision", "fp32", "gpus", "2", "framework", "fsdp", "gpu",
        "a100-40gb" } },
    { "mixtral-8x7b",
      { "framework", "megatron", "gpus", "16", "tp", "2", "pp", "2" } },
    { "deepseek-v3", { "framework", "deepspeed", "gpus", "64", "zero", "3" } },
    { "gpt2-xl", { "micro_batch", "32" } },
    { "mamba-2.8b", { "seq_len", "8192", "micro_batch", "4" } },
};

/* "--micro-batch 1 --zero 2" after pairs; words is written into. */
static void add_options(const char **pairs, char *words)
{
    size_t n = 0;
    while (pairs[n] != NULL)
        n += 2;
    for (char *key = strtok(words, " "); key != NULL; key = strtok(NULL, " ")) {
        assert_int_equal(strncmp(key, "--", 2), 0);
        key += 2;
        for (char *c = key; *c != '\0'; c++)
            *c = *c == '-' ? '_' : *c;
        pairs[n++] = key;
        pairs[n++] = strtok(NULL, " ");
        assert_non_null(pairs[n - 1]);
    }
    pairs[n] = NULL;
}

static void comes_true(const struct setting *s, const struct change *c)
{
    enum { MOST = 64 };
    const char *pairs[MOST] = { NULL };
    char words[CHANGE_TEXT_MAX];
    memcpy(pairs, s->pairs, sizeof s->pairs);
    strcpy(words, c->text);
    add_options(pairs, words);
    memplan_report *r = estimate(s->model, pairs);
    if (r->memory.device_total != c->device_total)
        print_error("%s: %s\n", s->model, c->text);
    assert_int_equal(r->memory.device_total, c->device_total);
    assert_int_equal(r->memory.peak, c->peak);
    assert_int_equal(r->memory.fits, c->fits);
    memplan_report_free(r);
}

static void test_changes_come_true(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < COUNT(tight); i++) {
        memplan_report *r = estimate(tight[i].model, tight[i].pairs);
        if (memplan_report_fits(r))
            print_error("%s fits\n", tight[i].model);
        assert_false(memplan_report_fits(r));
        struct changes changes;
        assert_true(report_changes(&changes, r));
        for (size_t j = 0; j < changes.n; j++, n++) {
            comes_true(&tight[i], &changes.row[j]);
            assert_true(changes.row[j].device_total < r->memory.device_total);
        }
        memplan_report_free(r);
    }
    assert_true(n > 3 * COUNT(tight));
}

/* ---- the setup ---- */

static const struct setting echoes[] = {
    { "llama-7b", { NULL } },
    { "gpt2", { "gpus", "4", "zero", "2" } },
    { "mixtral-8x7b",
      { "framework", "megatron", "gpus", "16", "tp", "2", "pp", "2" } },
    { "mixtral-8x7b",
      { "framework", "megatron", "gpus", "8", "ep", "8",
        "moe_expert_capacity_factor", "1.25" } },
    { "deepseek-v3", { "framework", "deepspeed", "gpus", "64", "zero", "3" } },
    { "llama-13b", { "framework", "fsdp", "gpus", "8", "lora_rank", "16" } },
    { "mamba-2.8b", { "gpus", "2" } },
    { "dit-xl-2", { "gpus", "8" } },
    { "resnet-50", { "gpus", "8" } },
    { "t5-base", { NULL } },
    { "phi-2", { NULL } },
    { "clip-vit-base-patch16", { NULL } },
    { "whisper-small", { NULL } },
    { "qwen3-next-80b-a3b", { "gpus", "64", "zero", "3" } },
    { "llama-7b", { "recompute", "full" } },
    { "bert-large", { "precision", "fp32" } },
};

struct text {
    char *p;
    size_t n;
};

static bool append(void *ctx, const char *text, size_t len)
{
    struct text *t = ctx;
    char *p = realloc(t->p, t->n + len + 1);
    if (p == NULL)
        return false;
    memcpy(p + t->n, text, len);
    t->p = p;
    t->n += len;
    p[t->n] = '\0';
    return true;
}

/* Of a report's JSON the setup, which has lists and no objects. */
static void parse_echo(memplan_setup *setup, const memplan_report *r)
{
    struct text t = { NULL, 0 };
    const memplan_style style = { .format = MEMPLAN_FORMAT_JSON };
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    assert_int_equal(
        memplan_report_write(r, MEMPLAN_VIEW_SUMMARY, &style, append, &t, NULL),
        MEMPLAN_OK);
    const char *begin = strstr(t.p, "\"setup\":");
    assert_non_null(begin);
    begin = strchr(begin, '{');
    const size_t n = (size_t)(strchr(begin, '}') - begin) + 1;
    if (memplan_setup_parse(setup, begin, n, &errs) != MEMPLAN_OK)
        fail_msg("%s", slot[0].message);
    free(t.p);
}

static void test_setup_goes_round(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(echoes); i++) {
        memplan_report *r = estimate(echoes[i].model, echoes[i].pairs);
        memplan_report *again = NULL;
        memplan_model *model = NULL;
        memplan_setup *setup = NULL;
        memplan_error slot[4];
        memplan_errors errs = { slot, 4, 0 };
        assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
        parse_echo(setup, r);
        assert_int_equal(
            memplan_model_builtin(&model, echoes[i].model, NULL, NULL),
            MEMPLAN_OK);
        if (memplan_estimate(&again, model, setup, NULL, &errs) != MEMPLAN_OK)
            fail_msg("%s: %s", echoes[i].model, slot[0].message);
        if (again->memory.device_total != r->memory.device_total)
            print_error("%s\n", echoes[i].model);
        assert_int_equal(again->memory.device_total, r->memory.device_total);
        assert_int_equal(again->memory.peak, r->memory.peak);
        const double was = r->compute.step_time_s;
        if (!(fabs(again->compute.step_time_s - was) <= 1e-9 * was))
            fail_msg("%s: %g s, %g s", echoes[i].model, was,
                     again->compute.step_time_s);
        memplan_report_free(again);
        memplan_report_free(r);
        memplan_setup_free(setup);
        memplan_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_come_true),
        cmocka_unit_test(test_setup_goes_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
