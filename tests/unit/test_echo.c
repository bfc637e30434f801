/*
 * The setup that an estimate echoes, given back, is the same estimate: what was
 * left to defaults is said, and what another key asks for is not said to be
 * given.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "base/banned.h"

enum { TEXT_MAX = 1 << 20 };

static char text[TEXT_MAX];
static size_t length;

static bool keep(void *ctx, const char *part, size_t n)
{
    (void)ctx;
    if (length + n >= TEXT_MAX)
        return false;
    memcpy(text + length, part, n);
    length += n;
    text[length] = '\0';
    return true;
}

/* The value of "setup" in `text`. */
static const char *echo_of(const memplan_report *report, size_t *n)
{
    const memplan_style style = { .format = MEMPLAN_FORMAT_JSON };
    length = 0;
    assert_int_equal(memplan_report_write(report, MEMPLAN_VIEW_SUMMARY, &style,
                                          keep, NULL, NULL),
                     MEMPLAN_OK);
    const char *from = strstr(text, "\"setup\": {");
    assert_non_null(from);
    from = strchr(from, '{');
    const char *end = strstr(from, "\n  }");
    assert_non_null(end);
    *n = (size_t)(end - from) + strlen("\n  }");
    return from;
}

static bool is_same(const memplan_report *x, const memplan_report *y)
{
    static const char *const paths[] = {
        "memory.device_total",  "memory.peak_allocated",
        "compute.gpus",         "compute.tokens",
        "compute.gpu_hours",    "compute.days",
        "compute.cost_usd",     "compute.mfu",
        "compute.tokens_per_s", "compute.communication_bytes",
    };
    bool same = true;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        double a = 0, b = 0;
        const memplan_status had = memplan_report_number(&a, x, paths[i]);
        const memplan_status has = memplan_report_number(&b, y, paths[i]);
        const bool one = had == has && !(a < b) && !(a > b);
        if (!one)
            print_message("%s: %g, then %g\n", paths[i], a, b);
        same = same && one;
    }
    return same;
}

static bool is_kept(const memplan_model *m, const char *framework,
                    const char *json, const char *fast)
{
    memplan_setup *first = NULL, *again = NULL;
    memplan_report *x = NULL, *y = NULL;
    memplan_error slot = { 0 };
    memplan_errors errs = { &slot, 1, 0 };
    size_t n = 0;
    assert_int_equal(memplan_setup_new(&first, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&again, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_parse(first, json, strlen(json), NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_set(first, "framework", framework, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_set(first, "fast", fast, NULL), MEMPLAN_OK);
    bool same = true;
    if (memplan_estimate(&x, m, first, NULL, NULL) == MEMPLAN_OK) {
        const char *echo = echo_of(x, &n);
        same = memplan_setup_parse(again, echo, n, &errs) == MEMPLAN_OK
               && memplan_estimate(&y, m, again, NULL, &errs) == MEMPLAN_OK
               && is_same(x, y);
    }
    if (!same)
        print_message("%s, %s: %s\n", framework, json, slot.message);
    memplan_report_free(x);
    memplan_report_free(y);
    memplan_setup_free(first);
    memplan_setup_free(again);
    return same;
}

static void the_echo_is_the_setup(void **state)
{
    (void)state;
    static const char *const models[] = { "llama-7b",    "mixtral-8x7b",
                                          "deepseek-v3", "bert-large",
                                          "t5-base",     "qwen2-vl-7b",
                                          "mamba2-130m" };
    static const char *const frameworks[] = {
        "hf", "deepspeed", "fsdp", "torchtitan", "megatron", "torchtune", "nemo"
    };
    static const char *const setups[] = {
        "{}",
        "{\"days\": 3}",
        "{\"days\": 3, \"gpus\": 8}",
        "{\"days\": 3, \"tp\": 2}",
        "{\"budget\": 1e21}",
        "{\"tokens\": 1000000000, \"mfu\": 0.4, \"price\": 2}",
        "{\"gpus\": 16, \"tp\": 2, \"pp\": 2, \"grad_accum\": 4}",
        "{\"gpus\": 8, \"zero\": 3, \"recompute\": \"full\"}",
        "{\"gpus\": 8, \"ep\": 2, \"moe_imbalance\": 1.5}",
        "{\"precision\": \"fp32\", \"optimizer\": \"sgd\"}",
        "{\"precision\": \"fp16-mixed\", \"dropout\": 0.1}",
        "{\"precision\": \"fp8-mixed\", \"gpu\": \"h100-80gb\"}",
        "{\"lora_rank\": 8, \"base_dtype\": \"nf4\"}",
        "{\"lora_rank\": 8, \"peft_type\": \"lora\"}",
        ("{\"precision\": \"bf16\", \"lora_rank\": 8, \"lora_full_modules\": \"head\", "
         "\"ensure_weight_tying\": true}"),
        "{\"peft_type\": \"ia3\"}",
        "{\"peft_type\": \"prompt-tuning\"}",
        "{\"peft_type\": \"p-tuning\"}",
        "{\"peft_type\": \"prefix-tuning\"}",
        "{\"peft_type\": \"prefix-tuning\", \"prefix_projection\": true}",
        "{\"offload_optimizer\": \"cpu\", \"gpus\": 2, \"zero\": 2}",
        "{\"loss\": \"fused\", \"seq_len\": 512, \"global_batch\": 8}",
        "{\"optimizer\": \"adam8bit\", \"recompute\": \"selective\"}",
    };
    size_t lost = 0;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        memplan_model *m = NULL;
        assert_int_equal(memplan_model_builtin(&m, models[i], NULL, NULL),
                         MEMPLAN_OK);
        for (size_t f = 0; f < sizeof(frameworks) / sizeof(frameworks[0]); f++)
            for (size_t s = 0; s < sizeof(setups) / sizeof(setups[0]); s++)
                lost +=
                    !is_kept(m, frameworks[f], setups[s], i ? "true" : "false");
        memplan_model_free(m);
    }
    assert_int_equal(lost, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_echo_is_the_setup),
    };
    return cmocka_run_group_tests_name("echo", tests, NULL, NULL);
}
