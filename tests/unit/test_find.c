/*
 * The inverse questions: what is found fits by the estimate, and nothing beyond
 * it does, each candidate asked alone.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "plan/plan.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct question {
    const char *model;
    const char *what;
    const char *setup; /* JSON */
};

static memplan_setup *setup_of(const char *json)
{
    memplan_setup *setup = NULL;
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_parse(setup, json, strlen(json), NULL),
                     MEMPLAN_OK);
    return setup;
}

static memplan_found *ask(const struct question *q, const memplan_model *model)
{
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    memplan_setup *setup = setup_of(q->setup);
    memplan_found *found = NULL;
    if (memplan_find(&found, model, setup, q->what, NULL, &errs) != MEMPLAN_OK)
        fail_msg("%s %s: %s", q->model, q->what, slot[0].message);
    memplan_setup_free(setup);
    return found;
}

/* What decides an estimate with the key at that value, without its proposals:
 * 1 fits, 0 does not, -1 refused. */
static int fits_with(const struct question *q, const memplan_model *model,
                     uint64_t value, uint64_t *device_total)
{
    char text[24];
    struct diag d;
    int fits = -1;
    memplan_setup *setup = setup_of(q->setup);
    memplan_report *r = plan_report_new(NULL);
    assert_non_null(r);
    diag_init(&d, NULL);
    snprintf(text, sizeof text, "%" PRIu64, value);
    assert_int_equal(memplan_setup_set(setup, q->what, text, NULL), MEMPLAN_OK);
    if (plan_memory(r, &model->spec, &model->params, &setup->setup, &d)
            == MEMPLAN_OK
        && plan_allocator(r, false, &d) == MEMPLAN_OK) {
        fits = r->memory.fits;
        *device_total = r->memory.device_total;
    }
    memplan_report_free(r);
    memplan_setup_free(setup);
    return fits;
}

static uint64_t total_of(const memplan_report *r)
{
    uint64_t bytes = 0;
    assert_int_equal(memplan_report_bytes(&bytes, r, "memory.device_total"),
                     MEMPLAN_OK);
    return bytes;
}

/* ---- values of a key: every candidate up to half as much again ---- */

static const struct {
    struct question q;
    uint64_t step;
} values[] = {
    { { "gpt2", "micro_batch", "{\"gpu_memory\": \"16GiB\"}" }, 1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"zero\": 3, \"recompute\": \"full\"}" },
      1 },
    { { "resnet-50-cifar", "micro_batch",
        "{\"gpu\": \"v100-16gb\", \"precision\": \"fp32\", "
        "\"gpu_memory\": \"2GiB\", \"optimizer\": \"momentum\"}" },
      1 },
    { { "gpt2", "micro_batch",
        "{\"gpu_memory\": \"16GiB\", \"fast\": true, \"grad_accum\": 4}" },
      1 },
    { { "llama-7b", "seq_len",
        "{\"gpus\": 8, \"zero\": 3, \"micro_batch\": 2}" },
      128 },
    { { "llama-7b", "seq_len",
        "{\"gpus\": 8, \"tp\": 4, \"pp\": 2, \"grad_accum\": 4}" },
      128 },
    { { "70b", "seq_len", "{\"gpus\": 64, \"tp\": 8, \"cp\": 8}" }, 128 },
    { { "llama-7b", "micro_batch",
        "{\"lora_rank\": 16, \"base_dtype\": \"nf4\", \"gpu\": "
        "\"rtx-4090\", \"seq_len\": 1024, \"recompute\": \"full\"}" },
      1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"zero\": 3, \"offload_optimizer\": \"cpu\", "
        "\"offload_params\": \"cpu\"}" },
      1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"pp\": 4, \"schedule\": \"zb-v\", "
        "\"grad_accum\": 8}" },
      1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 4, \"framework\": \"hf\", \"schedule\": "
        "\"naive\"}" },
      1 },
};

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(values); i++) {
        const struct question *q = &values[i].q;
        memplan_model *model = NULL;
        uint64_t best = 0, total = 0;
        assert_int_equal(memplan_model_builtin(&model, q->model, NULL, NULL),
                         MEMPLAN_OK);
        memplan_found *found = ask(q, model);
        assert_true(memplan_found_value(&best, found));
        assert_int_equal(best % values[i].step, 0);
        assert_int_equal(fits_with(q, model, best, &total), 1);
        assert_int_equal(total, total_of(memplan_found_best(found)));
        assert_non_null(memplan_found_next(found));
        assert_int_equal(fits_with(q, model, best + values[i].step, &total), 0);
        assert_int_equal(total, total_of(memplan_found_next(found)));
        for (uint64_t v = best + values[i].step;
             v <= best + best / 2 && v <= best + 50 * values[i].step;
             v += values[i].step)
            if (fits_with(q, model, v, &total) == 1)
                fail_msg("%s: %s %" PRIu64 " fits, %" PRIu64 " was found",
                         q->model, q->what, v, best);
        memplan_found_free(found);
        memplan_model_free(model);
    }
}

/* ---- batches that divide: all of them ---- */

static void test_global_batch(void **state)
{
    (void)state;
    static const struct question q = {
        "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"zero\": 3, \"recompute\": \"full\", "
        "\"global_batch\": 480, \"pp\": 1}"
    };
    memplan_model *model = NULL;
    uint64_t best = 0, total = 0;
    assert_int_equal(memplan_model_builtin(&model, q.model, NULL, NULL),
                     MEMPLAN_OK);
    memplan_found *found = ask(&q, model);
    assert_true(memplan_found_value(&best, found));
    assert_int_equal(60 % best, 0);
    for (uint64_t v = 1; v <= 60; v++)
        if (fits_with(&q, model, v, &total) == 1)
            assert_true(v <= best);
    const struct memplan_report *r = memplan_found_best(found);
    assert_int_equal(r->run.global_batch, 480);
    assert_int_equal(r->run.grad_accum, 60 / best);
    memplan_found_free(found);
    memplan_model_free(model);
}

/* ---- GPUs: none fewer ---- */

static void test_gpus(void **state)
{
    (void)state;
    static const struct question asked[] = {
        { "13b", "gpus", "{\"zero\": 3}" },
        { "70b", "gpus", "{\"zero\": 3, \"recompute\": \"full\"}" },
        { "70b", "gpus", "{\"tp\": 4, \"pp\": 3}" },
        { "mixtral-8x7b", "gpus", "{\"tp\": 2, \"ep\": 8}" },
        { "13b", "gpus", "{\"zero\": 3, \"global_batch\": 48}" },
    };
    for (size_t i = 0; i < COUNT(asked); i++) {
        memplan_model *model = NULL;
        uint64_t best = 0, total = 0;
        assert_int_equal(
            memplan_model_builtin(&model, asked[i].model, NULL, NULL),
            MEMPLAN_OK);
        memplan_found *found = ask(&asked[i], model);
        assert_true(memplan_found_value(&best, found));
        assert_int_equal(fits_with(&asked[i], model, best, &total), 1);
        for (uint64_t v = 1; v < best; v++)
            if ((v < 8 || v % 8 == 0)
                && fits_with(&asked[i], model, v, &total) == 1)
                fail_msg("%s fits on %" PRIu64 ", %" PRIu64 " were found",
                         asked[i].model, v, best);
        memplan_found_free(found);
        memplan_model_free(model);
    }
}

/* ---- models of another size: as a file that says so ---- */

static void write_shape(char *text, size_t size, const memplan_report *r)
{
    const struct spec *m = &r->spec;
    snprintf(text, size,
             "{\"model_type\": \"llama\", \"num_hidden_layers\": %" PRIu64
             ", \"hidden_size\": %" PRIu64 ", \"num_attention_heads\": %" PRIu64
             ", \"num_key_value_heads\": %" PRIu64
             ", \"intermediate_size\": %" PRIu64 ", \"vocab_size\": %" PRIu64
             ", \"max_position_embeddings\": %" PRIu64 "}",
             m->layers, m->hidden, m->heads, m->kv_heads, m->ffn, m->vocab,
             m->max_positions);
}

static void assert_same_model(const struct question *q,
                              const memplan_report *found)
{
    char text[400];
    memplan_model *model = NULL;
    memplan_report *report = NULL;
    memplan_setup *setup = setup_of(q->setup);
    write_shape(text, sizeof text, found);
    assert_int_equal(
        memplan_model_parse(&model, text, strlen(text), "x", NULL, NULL),
        MEMPLAN_OK);
    assert_int_equal(memplan_model_parameters(model), found->params.total);
    assert_int_equal(memplan_estimate(&report, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(total_of(report), total_of(found));
    assert_int_equal(memplan_report_fits(report), memplan_report_fits(found));
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct question asked[] = {
        { "llama-7b", "layers", "{\"gpus\": 8, \"zero\": 3}" },
        { "llama-7b", "layers",
          "{\"gpus\": 16, \"tp\": 2, \"pp\": 4, \"vpp\": 2}" },
        { "llama-7b", "params",
          "{\"gpus\": 8, \"zero\": 3, \"recompute\": \"full\", "
          "\"gpu\": \"h100-80gb\"}" },
        { "llama-2-70b", "params",
          "{\"gpus\": 64, \"tp\": 8, \"pp\": 4, \"recompute\": \"full\"}" },
    };
    for (size_t i = 0; i < COUNT(asked); i++) {
        memplan_model *model = NULL;
        assert_int_equal(
            memplan_model_builtin(&model, asked[i].model, NULL, NULL),
            MEMPLAN_OK);
        memplan_found *found = ask(&asked[i], model);
        const memplan_report *best = memplan_found_best(found);
        const memplan_report *next = memplan_found_next(found);
        assert_non_null(best);
        assert_non_null(next);
        assert_true(memplan_report_fits(best));
        assert_false(memplan_report_fits(next));
        assert_true(next->params.total > best->params.total);
        assert_same_model(&asked[i], best);
        assert_same_model(&asked[i], next);
        memplan_found_free(found);
        memplan_model_free(model);
    }
}

/* ---- answers that are none ---- */

static void test_nothing_fits(void **state)
{
    (void)state;
    static const struct question q = { "70b", "micro_batch", "{\"gpus\": 8}" };
    memplan_model *model = NULL;
    uint64_t value = 7;
    assert_int_equal(memplan_model_builtin(&model, q.model, NULL, NULL),
                     MEMPLAN_OK);
    memplan_found *found = ask(&q, model);
    assert_false(memplan_found_value(&value, found));
    assert_int_equal(value, 0);
    assert_null(memplan_found_best(found));
    assert_non_null(memplan_found_next(found));
    assert_false(memplan_report_fits(memplan_found_next(found)));
    memplan_found_free(found);
    memplan_model_free(model);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        struct question q;
        memplan_status status;
        const char *key;
    } rows[] = {
        { { "gpt2", "micro_batch", "{\"micro_batch\": 4}" },
          MEMPLAN_E_CONFLICT,
          "micro_batch" },
        { { "gpt2", "micro_batch", "{\"global_batch\": 8, \"grad_accum\": 2}" },
          MEMPLAN_E_CONFLICT,
          "grad_accum" },
        { { "gpt2", "seq_len", "{\"seq_len\": 4}" },
          MEMPLAN_E_CONFLICT,
          "seq_len" },
        { { "gpt2", "gpus", "{\"gpus\": 4}" }, MEMPLAN_E_CONFLICT, "gpus" },
        { { "gpt2", "gpus", "{\"dp\": 4}" }, MEMPLAN_E_CONFLICT, "dp" },
        { { "gpt2", "layers", "{\"pp\": 2, \"pipeline_layers\": \"6,6\"}" },
          MEMPLAN_E_CONFLICT,
          "pipeline_layers" },
        { { "gpt2", "params", "{\"params\": 4}" },
          MEMPLAN_E_CONFLICT,
          "params" },
        { { "gpt2", "width", "{}" }, MEMPLAN_E_UNKNOWN, "" },
        { { "resnet-50", "layers", "{}" }, MEMPLAN_E_UNSUPPORTED, "" },
        { { "resnet-50", "seq_len", "{}" }, MEMPLAN_E_UNSUPPORTED, "" },
        { { "deepseek-v3", "params", "{}" }, MEMPLAN_E_UNSUPPORTED, "" },
        { { "gpt2", "micro_batch", "{\"tp\": 5}" }, MEMPLAN_E_CONFLICT, "tp" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        memplan_error slot[4] = { { .key = "" } };
        memplan_errors errs = { slot, 4, 0 };
        memplan_model *model = NULL;
        memplan_found *found = NULL;
        memplan_setup *setup = setup_of(rows[i].q.setup);
        assert_int_equal(
            memplan_model_builtin(&model, rows[i].q.model, NULL, NULL),
            MEMPLAN_OK);
        assert_int_equal(
            memplan_find(&found, model, setup, rows[i].q.what, NULL, &errs),
            rows[i].status);
        assert_null(found);
        assert_string_equal(slot[0].key, rows[i].key);
        assert_true(slot[0].hint[0] != '\0');
        memplan_setup_free(setup);
        memplan_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_global_batch),
        cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
