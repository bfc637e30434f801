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

#include "plan/find.h"
#include "plan/plan.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct question {
    const char *model;
    const char *what;
    const char *setup; /* JSON */
    uint64_t micros;   /* a step, of a pipeline that is not told; 0: as told */
};

static void set_count(memplan_setup *setup, const char *key, uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n);
    assert_int_equal(memplan_setup_set(setup, key, text, NULL), MEMPLAN_OK);
}

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

/* What the question is of an estimate, to which micro-batches are said. */
static memplan_setup *estimate_setup(const struct question *q)
{
    memplan_setup *setup = setup_of(q->setup);
    if (q->micros > 0)
        set_count(setup, "grad_accum", q->micros);
    return setup;
}

/* What decides an estimate with the key at that value, without its proposals:
 * 1 fits, 0 does not, -1 refused. */
static int fits_with(const struct question *q, const memplan_model *model,
                     uint64_t value, uint64_t *device_total)
{
    struct diag d;
    int fits = -1;
    memplan_setup *setup = estimate_setup(q);
    memplan_report *r = plan_report_new(NULL);
    assert_non_null(r);
    diag_init(&d, NULL);
    set_count(setup, q->what, value);
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
    { { "gpt2", "micro_batch", "{\"gpu_memory\": \"16GiB\"}", 0 }, 1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"zero\": 3, \"recompute\": \"full\"}", 0 },
      1 },
    { { "resnet-50-cifar", "micro_batch",
        "{\"gpu\": \"v100-16gb\", \"precision\": \"fp32\", "
        "\"gpu_memory\": \"2GiB\", \"optimizer\": \"momentum\"}",
        0 },
      1 },
    { { "gpt2", "micro_batch",
        "{\"gpu_memory\": \"16GiB\", \"fast\": true, \"grad_accum\": 4}", 0 },
      1 },
    { { "llama-7b", "seq_len", "{\"gpus\": 8, \"zero\": 3, \"micro_batch\": 2}",
        0 },
      128 },
    { { "llama-7b", "seq_len",
        "{\"gpus\": 8, \"tp\": 4, \"pp\": 2, \"grad_accum\": 4}", 0 },
      128 },
    { { "70b", "seq_len", "{\"gpus\": 64, \"tp\": 8, \"cp\": 8}", 0 }, 128 },
    { { "llama-7b", "micro_batch",
        "{\"lora_rank\": 16, \"base_dtype\": \"nf4\", \"gpu\": "
        "\"rtx-4090\", \"seq_len\": 1024, \"recompute\": \"full\"}",
        0 },
      1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"zero\": 3, \"offload_optimizer\": \"cpu\", "
        "\"offload_params\": \"cpu\"}",
        0 },
      1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"pp\": 4, \"schedule\": \"zb-v\", "
        "\"grad_accum\": 8}",
        0 },
      1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 4, \"framework\": \"hf\", \"schedule\": "
        "\"naive\"}",
        1 },
      1 },
    { { "llama-7b", "seq_len", "{\"gpus\": 8, \"pp\": 4}", 8 }, 128 },
    { { "llama-7b", "seq_len",
        "{\"gpus\": 8, \"pp\": 4, \"schedule\": \"gpipe\"}", 8 },
      128 },
    { { "llama-7b", "seq_len", "{\"gpus\": 8, \"pp\": 4, \"vpp\": 2}", 8 },
      128 },
    { { "llama-7b", "seq_len",
        "{\"gpus\": 8, \"pp\": 4, \"schedule\": \"zb-h1\"}", 8 },
      128 },
    { { "llama-7b", "seq_len",
        "{\"gpus\": 8, \"pp\": 4, \"schedule\": \"dualpipe\"}", 8 },
      128 },
    { { "llama-7b", "seq_len",
        "{\"gpus\": 8, \"pp\": 4, \"schedule\": \"dualpipe-v\"}", 8 },
      128 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"pp\": 4, \"schedule\": \"zb-v\"}", 8 },
      1 },
    { { "llama-7b", "micro_batch", "{\"gpus\": 8, \"pp\": 2, \"zero\": 0}", 4 },
      1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"pp\": 4, \"framework\": \"torchtitan\", "
        "\"vpp\": 2, \"seq_len\": 1024}",
        8 },
      1 },
    { { "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"pp\": 4, \"framework\": \"megatron-deepspeed\"}", 8 },
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
        const uint64_t tried = q->micros > 0 ? 10 : 50; /* those take long */
        for (uint64_t v = best + values[i].step;
             v <= best + best / 2 && v <= best + tried * values[i].step;
             v += values[i].step)
            if (fits_with(q, model, v, &total) == 1)
                fail_msg("%s: %s %" PRIu64 " fits, %" PRIu64 " was found",
                         q->model, q->what, v, best);
        if (q->micros > 0)
            assert_int_equal(memplan_found_best(found)->run.grad_accum,
                             q->micros);
        memplan_found_free(found);
        memplan_model_free(model);
    }
}

/* ---- batches that divide: all of them ---- */

/* Of `each` sequences that a replica has. */
static void assert_best_divisor(const struct question *q, uint64_t each)
{
    memplan_model *model = NULL;
    uint64_t best = 0, total = 0;
    assert_int_equal(memplan_model_builtin(&model, q->model, NULL, NULL),
                     MEMPLAN_OK);
    memplan_found *found = ask(q, model);
    assert_true(memplan_found_value(&best, found));
    assert_int_equal(each % best, 0);
    for (uint64_t v = 1; v <= each; v++)
        if (fits_with(q, model, v, &total) == 1)
            assert_true(v <= best);
    const struct memplan_report *r = memplan_found_best(found);
    assert_int_equal(r->run.dp * each, r->run.global_batch);
    assert_int_equal(r->run.grad_accum, each / best);
    memplan_found_free(found);
    memplan_model_free(model);
}

static void test_global_batch(void **state)
{
    (void)state;
    static const struct question sharded = {
        "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"zero\": 3, \"recompute\": \"full\", "
        "\"global_batch\": 480, \"pp\": 1}",
        0
    };
    static const struct question piped = {
        "llama-7b", "micro_batch",
        "{\"gpus\": 8, \"pp\": 4, \"vpp\": 2, \"recompute\": \"full\", "
        "\"global_batch\": 96}",
        0
    };
    static const struct question spread = {
        /* pp is as many as GPUs */
        "llama-7b", "micro_batch",
        "{\"gpus\": 4, \"framework\": \"hf\", \"schedule\": \"naive\", "
        "\"global_batch\": 24}",
        0
    };
    assert_best_divisor(&sharded, 60);
    assert_best_divisor(&piped, 48);
    assert_best_divisor(&spread, 24);
}

/* ---- GPUs: none fewer ---- */

static void test_gpus(void **state)
{
    (void)state;
    static const struct question asked[] = {
        { "13b", "gpus", "{\"zero\": 3}", 0 },
        { "70b", "gpus", "{\"zero\": 3, \"recompute\": \"full\"}", 0 },
        { "70b", "gpus", "{\"tp\": 4, \"pp\": 3}", 6 },
        { "70b", "gpus", "{\"tp\": 4, \"pp\": 4, \"schedule\": \"zb-v\"}", 8 },
        { "13b", "gpus",
          "{\"tp\": 2, \"pp\": 4, \"vpp\": 5, \"gpu\": \"h100-80gb\", "
          "\"seq_len\": 4096}",
          8 },
        { "13b", "gpus", "{\"pp\": 4, \"global_batch\": 64}", 0 },
        { "mixtral-8x7b", "gpus", "{\"tp\": 2, \"ep\": 8}", 0 },
        { "13b", "gpus", "{\"zero\": 3, \"global_batch\": 48}", 0 },
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

/* Of thousands of numbers few are looked at, and none fewer fits. */
static void test_many_gpus(void **state)
{
    (void)state;
    static const struct question some = {
        "llama-7b", "gpus",
        "{\"zero\": 3, \"recompute\": \"full\", \"fast\": true, "
        "\"gpu_memory\": \"6680000000\"}",
        0
    };
    static const struct question none = {
        "llama-7b", "gpus",
        "{\"zero\": 2, \"recompute\": \"full\", \"gpu\": \"v100-16gb\"}", 0
    };
    memplan_model *model = NULL;
    uint64_t best = 0, total = 0;
    assert_int_equal(memplan_model_builtin(&model, some.model, NULL, NULL),
                     MEMPLAN_OK);
    memplan_found *found = ask(&some, model);
    assert_true(memplan_found_value(&best, found));
    assert_true(best > 1200);
    assert_true(found->looked < 400);
    assert_int_equal(fits_with(&some, model, best, &total), 1);
    for (uint64_t v = 8; v < best; v += 8)
        assert_int_equal(fits_with(&some, model, v, &total), 0);
    memplan_found_free(found);
    found = ask(&none, model);
    assert_null(memplan_found_best(found));
    assert_int_equal(memplan_found_next(found)->run.gpus, 65536);
    assert_true(found->looked < 400);
    memplan_found_free(found);
    memplan_model_free(model);
}

/* Of the deep models that may fit by the closed form few are simulated, each of
 * which is long; the next one still does not fit. */
static void test_deep(void **state)
{
    (void)state;
    static const struct question deep = { "gpt2", "layers", "{}", 0 };
    memplan_model *model = NULL;
    uint64_t best = 0;
    assert_int_equal(memplan_model_builtin(&model, deep.model, NULL, NULL),
                     MEMPLAN_OK);
    memplan_found *found = ask(&deep, model);
    assert_true(memplan_found_value(&best, found));
    assert_true(best > 400);
    assert_int_equal(memplan_found_next(found)->spec.layers, best + 1);
    assert_true(memplan_found_next(found)->memory.headroom < 0);
    assert_true(found->simulated <= 12);
    memplan_found_free(found);
    memplan_model_free(model);
}

/* ---- pipelines: with more micro-batches no more are in flight ---- */

static uint64_t peak_with(const struct question *q, uint64_t micros)
{
    const struct question told = { q->model, q->what, q->setup, micros };
    struct diag d;
    memplan_model *model = NULL;
    memplan_setup *setup = estimate_setup(&told);
    memplan_report *r = plan_report_new(NULL);
    assert_non_null(r);
    diag_init(&d, NULL);
    assert_int_equal(memplan_model_builtin(&model, q->model, NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(
        plan_memory(r, &model->spec, &model->params, &setup->setup, &d),
        MEMPLAN_OK);
    const uint64_t peak = r->memory.peak;
    memplan_report_free(r);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return peak;
}

/* GPipe holds them all. */
static const char *const schedules[] = {
    "\"schedule\": \"1f1b\"",
    "\"vpp\": 2",
    "\"vpp\": 4",
    "\"schedule\": \"zb-h1\"",
    "\"schedule\": \"zb-v\"",
    "\"schedule\": \"dualpipe\"",
    "\"schedule\": \"dualpipe-v\"",
    "\"framework\": \"megatron-deepspeed\"",
};

static void test_pipelines_are_full(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(schedules); i++)
        for (uint64_t pp = 2; pp <= 8; pp *= 2) {
            char setup[160];
            snprintf(setup, sizeof setup,
                     "{\"gpus\": 16, \"pp\": %" PRIu64 ", %s}", pp,
                     schedules[i]);
            const struct question q = { "llama-7b", "seq_len", setup, 0 };
            const uint64_t peak = peak_with(&q, 2 * pp);
            assert_int_equal(peak_with(&q, 4 * pp), peak);
            assert_int_equal(peak_with(&q, 6 * pp), peak);
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

/* No file of more layers fits, up to a quarter more of them. */
static void assert_none_deeper(const struct question *q,
                               const memplan_report *found)
{
    memplan_report *deeper = plan_report_new(NULL);
    assert_non_null(deeper);
    memplan_setup *setup = estimate_setup(q);
    const uint64_t best = found->spec.layers;
    for (uint64_t n = best + 1; n <= best + best / 4; n++) {
        char text[400];
        struct diag d;
        memplan_model *model = NULL;
        deeper->spec = found->spec;
        deeper->spec.layers = n;
        write_shape(text, sizeof text, deeper);
        diag_init(&d, NULL);
        assert_int_equal(
            memplan_model_parse(&model, text, strlen(text), "x", NULL, NULL),
            MEMPLAN_OK);
        if (plan_memory(deeper, &model->spec, &model->params, &setup->setup, &d)
                == MEMPLAN_OK
            && plan_allocator(deeper, false, &d) == MEMPLAN_OK)
            assert_false(deeper->memory.fits);
        memplan_model_free(model);
    }
    memplan_setup_free(setup);
    memplan_report_free(deeper);
}

static void assert_same_model(const struct question *q,
                              const memplan_report *found)
{
    char text[400];
    memplan_model *model = NULL;
    memplan_report *report = NULL;
    memplan_setup *setup = estimate_setup(q);
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
        { "llama-7b", "layers", "{\"gpus\": 8, \"zero\": 3}", 0 },
        { "llama-7b", "layers",
          "{\"gpus\": 16, \"tp\": 2, \"pp\": 4, \"vpp\": 2}", 8 },
        { "llama-7b", "layers",
          "{\"gpus\": 8, \"pp\": 4, \"schedule\": \"zb-v\"}", 8 },
        { "llama-7b", "params",
          "{\"gpus\": 8, \"pp\": 4, \"global_batch\": 32}", 0 },
        { "llama-7b", "params",
          "{\"gpus\": 8, \"zero\": 3, \"recompute\": \"full\", "
          "\"gpu\": \"h100-80gb\"}",
          0 },
        { "llama-2-70b", "params",
          "{\"gpus\": 64, \"tp\": 8, \"pp\": 4, \"recompute\": \"full\"}", 8 },
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
        if (strcmp(asked[i].what, "layers") == 0)
            assert_none_deeper(&asked[i], best);
        memplan_found_free(found);
        memplan_model_free(model);
    }
}

/* ---- answers that are none ---- */

static void assert_nothing_fits(const struct question *q, uint64_t nearest)
{
    memplan_model *model = NULL;
    uint64_t value = 7;
    assert_int_equal(memplan_model_builtin(&model, q->model, NULL, NULL),
                     MEMPLAN_OK);
    memplan_found *found = ask(q, model);
    assert_false(memplan_found_value(&value, found));
    assert_int_equal(value, 0);
    assert_null(memplan_found_best(found));
    const memplan_report *next = memplan_found_next(found);
    assert_non_null(next);
    assert_false(memplan_report_fits(next));
    if (nearest > 0)
        assert_int_equal(next->run.gpus, nearest);
    memplan_found_free(found);
    memplan_model_free(model);
}

static void test_nothing_fits(void **state)
{
    (void)state;
    static const struct {
        struct question q;
        uint64_t gpus; /* the most that are possible; 0: not asked */
    } rows[] = {
        { { "70b", "micro_batch", "{\"gpus\": 8}", 0 }, 0 },
        /* as many ranks as sequences a step, of 65536 GPUs */
        { { "7b", "gpus",
            "{\"global_batch\": 8, \"zero\": 1, \"gpu\": \"rtx-4090\"}", 0 },
          8 },
        /* one process has no replicas */
        { { "70b", "gpus", "{\"pp\": 2, \"framework\": \"hf\"}", 0 }, 2 },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_nothing_fits(&rows[i].q, rows[i].gpus);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        struct question q;
        memplan_status status;
        const char *key;
    } rows[] = {
        { { "gpt2", "micro_batch", "{\"micro_batch\": 4}", 0 },
          MEMPLAN_E_CONFLICT,
          "micro_batch" },
        { { "gpt2", "micro_batch", "{\"global_batch\": 8, \"grad_accum\": 2}",
            0 },
          MEMPLAN_E_CONFLICT,
          "grad_accum" },
        { { "gpt2", "seq_len", "{\"seq_len\": 4}", 0 },
          MEMPLAN_E_CONFLICT,
          "seq_len" },
        { { "gpt2", "gpus", "{\"gpus\": 4}", 0 }, MEMPLAN_E_CONFLICT, "gpus" },
        { { "gpt2", "gpus", "{\"dp\": 4}", 0 }, MEMPLAN_E_CONFLICT, "dp" },
        { { "gpt2", "layers", "{\"pp\": 2, \"pipeline_layers\": \"6,6\"}", 0 },
          MEMPLAN_E_CONFLICT,
          "pipeline_layers" },
        { { "gpt2", "params", "{\"params\": 4}", 0 },
          MEMPLAN_E_CONFLICT,
          "params" },
        { { "gpt2", "width", "{}", 0 }, MEMPLAN_E_UNKNOWN, "" },
        { { "resnet-50", "layers", "{}", 0 }, MEMPLAN_E_UNSUPPORTED, "" },
        { { "resnet-50", "seq_len", "{}", 0 }, MEMPLAN_E_UNSUPPORTED, "" },
        { { "deepseek-v3", "params", "{}", 0 }, MEMPLAN_E_UNSUPPORTED, "" },
        { { "gpt2", "micro_batch", "{\"tp\": 5}", 0 },
          MEMPLAN_E_CONFLICT,
          "tp" },
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
        cmocka_unit_test(test_many_gpus),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_pipelines_are_full),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
