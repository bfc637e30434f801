/*
 * quantization_config of a model's file: the default of base_dtype and
 * double_quant under adapters, and said where it is passed over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "plan/plan.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static memplan_report *estimate(const char *stored, const char *setup_json)
{
    char text[800];
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *r = NULL;
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"num_hidden_layers\": 4, "
             "\"hidden_size\": 1024, \"num_attention_heads\": 8, "
             "\"intermediate_size\": 2816, \"vocab_size\": 32000, "
             "\"max_position_embeddings\": 1024%s%s}",
             stored[0] != '\0' ? ", \"quantization_config\": " : "", stored);
    assert_int_equal(
        memplan_model_parse(&model, text, strlen(text), "x", NULL, NULL),
        MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(
        memplan_setup_parse(setup, setup_json, strlen(setup_json), NULL),
        MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&r, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return r;
}

static const char *said(const memplan_report *r, const char *part)
{
    static char buf[ASSUMPTION_TEXT];
    for (size_t i = 0; i < r->run.n_assumptions; i++) {
        const char *text = assumption_text(&r->run.assumption[i], buf);
        if (strstr(text, part) != NULL)
            return text;
    }
    return NULL;
}

/* A file that says it, beside the keys that mean the same. */
static const struct {
    const char *stored, *setup, *keys, *text;
} same[] = {
    { "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "
      "\"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_use_double_quant\": true}",
      "{\"lora_rank\": 8}",
      "{\"lora_rank\": 8, \"base_dtype\": \"nf4\", \"double_quant\": true}",
      "frozen weights in nf4, their scales in 8 bits, as the file's" },
    { "{\"load_in_4bit\": true, \"llm_int8_skip_modules\": [\"lm_head\"]}",
      "{\"lora_rank\": 8}", "{\"lora_rank\": 8, \"base_dtype\": \"fp4\"}",
      "frozen weights in fp4, as the file's" },
    { "{\"load_in_8bit\": true, \"llm_int8_skip_modules\": [\"a\", \"b\"]}",
      "{\"lora_rank\": 8}", "{\"lora_rank\": 8, \"base_dtype\": \"int8\"}",
      "leaves modules unpacked, 2 names" },
    { "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 64}",
      "{\"lora_rank\": 8}", "{\"lora_rank\": 8, \"base_dtype\": \"int4\"}",
      "taken as of 128 weights each" },
    { "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128}",
      "{\"lora_rank\": 8}", "{\"lora_rank\": 8, \"base_dtype\": \"int4\"}",
      "awq is taken as GPTQ's" },
    { "{\"quant_method\": \"gptq\", \"bits\": 8}", "{\"lora_rank\": 8}",
      "{\"lora_rank\": 8}", "(gptq) is passed over" },
    { "{\"load_in_4bit\": true}",
      "{\"lora_rank\": 8, \"base_dtype\": \"bf16\"}",
      "{\"lora_rank\": 8, \"base_dtype\": \"bf16\"}", NULL },
    { "{\"load_in_4bit\": true}", "{}", "{}", "under adapters alone" },
    { "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}", "{}",
      "{}", "(fp8) is passed over, and weights are taken in fp32" },
    { "{\"quant_method\": \"mxfp4\"}", "{\"lora_rank\": 8}",
      "{\"lora_rank\": 8}",
      "(mxfp4) is passed over, and weights are taken in "
      "bf16: as base_dtype it is not modelled" },
    { "{\"load_in_4bit\": true}", "{\"framework\": \"megatron\"}",
      "{\"framework\": \"megatron\"}", "nothing here loads such weights" },
    { "null", "{}", "{}", NULL },
};

static void test_as_the_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(same); i++) {
        memplan_report *a = estimate(same[i].stored, same[i].setup);
        memplan_report *b = estimate("", same[i].keys);
        assert_int_equal(a->memory.device_total, b->memory.device_total);
        assert_int_equal(a->run.base_dtype, b->run.base_dtype);
        assert_int_equal(a->run.double_quant, b->run.double_quant);
        if (same[i].text == NULL)
            assert_null(said(a, "quantization_config"));
        else
            assert_non_null(said(a, same[i].text));
        memplan_report_free(a);
        memplan_report_free(b);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *stored, *message;
    } rows[] = {
        { "\"nf4\"", "'quantization_config' must be an object, not a string" },
        { "{\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf5\"}",
          "'bnb_4bit_quant_type' must be 'nf4' or 'fp4', not 'nf5'" },
        { "{\"load_in_4bit\": true, \"load_in_8bit\": true}",
          "'load_in_8bit' beside 'load_in_4bit': weights have one of them" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[400];
        memplan_error slot;
        memplan_errors errs = { &slot, 1, 0 };
        memplan_model *model = NULL;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"llama\", \"num_hidden_layers\": 4, "
                 "\"hidden_size\": 1024, \"num_attention_heads\": 8, "
                 "\"intermediate_size\": 2816, \"vocab_size\": 32000, "
                 "\"quantization_config\": %s}",
                 rows[i].stored);
        assert_int_equal(
            memplan_model_parse(&model, text, strlen(text), "x", NULL, &errs),
            MEMPLAN_E_SCHEMA);
        assert_string_equal(slot.message, rows[i].message);
    }
}

/* GPTQConfig's group_size is 128 where none is said; -1 is a row. */
static void test_groups(void **state)
{
    (void)state;
    static const struct {
        const char *stored;
        bool said;
    } rows[] = {
        { "{\"quant_method\": \"gptq\", \"bits\": 4}", false },
        { "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -1}",
          true },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        memplan_report *r = estimate(rows[i].stored, "{\"lora_rank\": 8}");
        assert_int_equal(said(r, "the file's groups are others") != NULL,
                         rows[i].said);
        memplan_report_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_the_keys),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
