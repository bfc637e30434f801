/*
 * The public calls at their edges: arguments that are missing, and every
 * allocation failing once, through whole sessions in every format. After a
 * failure there is a status, no object, and nothing left allocated.
 */
#include "memplan/memplan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- an allocator with a budget, a writer ---- */

struct budget {
    size_t left; /* allocations that still succeed */
    size_t alive;
};

static void *limited(void *ctx, void *ptr, size_t old_size, size_t new_size)
{
    struct budget *b = ctx;
    if (new_size == 0) {
        b->alive -= old_size;
        free(ptr);
        return NULL;
    }
    if (b->left == 0)
        return NULL;
    b->left--;
    void *p = realloc(ptr, new_size);
    assert_non_null(p);
    b->alive += new_size - old_size;
    return p;
}

static bool add_length(void *ctx, const char *text, size_t len)
{
    (void)text;
    *(size_t *)ctx += len;
    return true;
}

static const memplan_style styles[] = {
    { MEMPLAN_FORMAT_TABLE, true, 100 },
    { MEMPLAN_FORMAT_JSON, false, 0 },
    { MEMPLAN_FORMAT_CSV, false, 0 },
    { MEMPLAN_FORMAT_MARKDOWN, false, 0 },
};
enum { STYLES = sizeof(styles) / sizeof(styles[0]) };

/* ---- memory running out ---- */

typedef memplan_status session_fn(const memplan_allocator *a, size_t *written);

/* Gives the session one allocation more each time, until it is through. */
static void run_out_of_memory(session_fn *session, size_t at_least)
{
    enum { MOST = 100000 };
    memplan_status status = MEMPLAN_E_NOMEM;
    size_t n = 0, written = 0;
    for (; status != MEMPLAN_OK; n++) {
        struct budget budget = { n, 0 };
        const memplan_allocator a = { limited, &budget };
        written = 0;
        status = session(&a, &written);
        if (status != MEMPLAN_OK && status != MEMPLAN_E_NOMEM)
            fail_msg("%s with %zu allocations", memplan_status_text(status), n);
        assert_int_equal(budget.alive, 0);
        assert_true(n < MOST);
    }
    assert_true(n > at_least);
    assert_true(written > 0);
}

static memplan_status set_all(memplan_setup *setup,
                              const char *const pairs[][2], size_t n)
{
    memplan_status status = MEMPLAN_OK;
    for (size_t i = 0; i < n && status == MEMPLAN_OK; i++)
        status = memplan_setup_set(setup, pairs[i][0], pairs[i][1], NULL);
    return status;
}

static memplan_status write_report(const memplan_report *report, size_t *n)
{
    static const memplan_view views[] = { MEMPLAN_VIEW_SUMMARY,
                                          MEMPLAN_VIEW_EXPLAIN };
    memplan_status status = MEMPLAN_OK;
    for (size_t i = 0; i < STYLES; i++)
        for (size_t v = 0; v < 2 && status == MEMPLAN_OK; v++)
            status = memplan_report_write(report, views[v], &styles[i],
                                          add_length, n, NULL);
    return status;
}

/* With pipeline, tensor and expert parallelism; it does not fit, so changes
 * are proposed. */
static memplan_status session_estimate(const memplan_allocator *a, size_t *n)
{
    static const char *const pairs[][2] = {
        { "framework", "megatron" },
        { "gpus", "64" },
        { "tp", "4" },
        { "pp", "4" },
        { "ep", "2" },
        { "gpu", "a100-40gb" },
        { "seq_len", "4096" },
    };
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    memplan_status status =
        memplan_model_builtin(&model, "mixtral-8x22b", a, NULL);
    if (status == MEMPLAN_OK)
        status = memplan_setup_new(&setup, a, NULL);
    if (status == MEMPLAN_OK)
        status = set_all(setup, pairs, sizeof(pairs) / sizeof(pairs[0]));
    if (status == MEMPLAN_OK)
        status = memplan_estimate(&report, model, setup, a, NULL);
    assert_true((report != NULL) == (status == MEMPLAN_OK));
    if (status == MEMPLAN_OK)
        status = write_report(report, n);
    if (status == MEMPLAN_OK)
        status = memplan_estimate_again(report, model, setup, NULL);
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return status;
}

static memplan_status session_compute(const memplan_allocator *a, size_t *n)
{
    static const char setup_text[] =
        "{\"gpus\": 64, \"params\": \"7B\", \"days\": 30, \"gpu\": \"h100\"}";
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    memplan_status status = memplan_setup_new(&setup, a, NULL);
    if (status == MEMPLAN_OK)
        status =
            memplan_setup_parse(setup, setup_text, strlen(setup_text), NULL);
    if (status == MEMPLAN_OK)
        status = memplan_compute(&report, NULL, setup, a, NULL);
    assert_true((report != NULL) == (status == MEMPLAN_OK));
    if (status == MEMPLAN_OK)
        status = write_report(report, n);
    memplan_report_free(report);
    memplan_setup_free(setup);
    return status;
}

static memplan_status session_models(const memplan_allocator *a, size_t *n)
{
    memplan_model *model = NULL;
    memplan_status status =
        memplan_model_builtin(&model, "phi-3-mini-4k", a, NULL);
    for (size_t i = 0; i < STYLES && status == MEMPLAN_OK; i++)
        status = memplan_model_write(model, &styles[i], add_length, n, NULL);
    memplan_model_free(model);
    return status;
}

static memplan_status session_check(const memplan_allocator *a, size_t *n)
{
    static const char text[] =
        "{\"cases\": [{\"name\": \"one\", \"model\": \"gpt2\","
        "\"setup\": {\"gpus\": 8}, \"assert\": {\"max_memory\": \"70GiB\","
        "\"max_gpu_hours\": 1}}, {\"model\": \"llama-7b\"}]}";
    memplan_check *check = NULL;
    bool held = true; /* one GPU is too small for the second case */
    memplan_status status = memplan_check_new(&check, a, NULL);
    if (check != NULL)
        status = memplan_check_parse(&held, check, text, strlen(text), NULL,
                                     NULL, NULL);
    assert_true(held == (check == NULL));
    for (size_t i = 0; i < STYLES && status == MEMPLAN_OK; i++)
        status = memplan_check_write(check, &styles[i], add_length, n, NULL);
    memplan_check_free(check);
    return status;
}

static memplan_status session_score(const memplan_allocator *a, size_t *n)
{
    static const char text[] =
        "{\"id\": \"a\", \"group\": \"g\", \"kind\": \"memory\","
        "\"model\": \"gpt2\", \"setup\": {\"gpus\": 8}, \"x-needs\": [\"x\"],"
        "\"measured\": {\"metric\": \"device_total\", \"bytes\": 1e9}}\n"
        "{\"id\": \"b\", \"group\": \"g\", \"kind\": \"throughput\","
        "\"model\": \"gpt2\", \"setup\": {},"
        "\"measured\": {\"metric\": \"mfu\", \"value\": 0.5}}\n"
        "{\"id\": \"c\", \"group\": \"g\", \"kind\": \"fit\","
        "\"model\": {\"model_type\": \"x\"}, \"setup\": {},"
        "\"measured\": {\"fits\": true}}\n";
    memplan_score *score = NULL;
    bool held = true;
    memplan_status status = memplan_score_new(&score, a, NULL);
    if (status == MEMPLAN_OK)
        status = memplan_score_parse(score, text, strlen(text), NULL);
    if (status == MEMPLAN_OK)
        status = memplan_score_held(&held, score, "1000%", NULL);
    for (size_t i = 0; i < STYLES && status == MEMPLAN_OK; i++)
        status = memplan_score_write(score, i == 0 ? "zero" : NULL, &styles[i],
                                     add_length, n, NULL);
    memplan_score_free(score);
    return status;
}

static memplan_status session_find(const memplan_allocator *a, size_t *n)
{
    static const char *const asked[] = { "micro_batch", "gpus", "params" };
    static const char text[] = "{\"gpu_memory\": \"6GiB\", \"zero\": 3}";
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_status status = memplan_model_builtin(&model, "gpt2", a, NULL);
    if (status == MEMPLAN_OK)
        status = memplan_setup_new(&setup, a, NULL);
    if (status == MEMPLAN_OK)
        status = memplan_setup_parse(setup, text, strlen(text), NULL);
    for (size_t i = 0; i < 3 && status == MEMPLAN_OK; i++) {
        memplan_found *found = NULL;
        status = memplan_find(&found, model, setup, asked[i], a, NULL);
        assert_true((found != NULL) == (status == MEMPLAN_OK));
        for (size_t k = 0; k < STYLES && status == MEMPLAN_OK; k++)
            status =
                memplan_found_write(found, &styles[k], add_length, n, NULL);
        memplan_found_free(found);
    }
    memplan_setup_free(setup);
    memplan_model_free(model);
    return status;
}

static void every_allocation_of_find(void **state)
{
    (void)state;
    run_out_of_memory(session_find, 5);
}

static void every_allocation_of_estimate(void **state)
{
    (void)state;
    run_out_of_memory(session_estimate, 5);
}

static void every_allocation_of_compute(void **state)
{
    (void)state;
    run_out_of_memory(session_compute, 2);
}

static void every_allocation_of_a_model(void **state)
{
    (void)state;
    run_out_of_memory(session_models, 2);
}

static void every_allocation_of_check(void **state)
{
    (void)state;
    run_out_of_memory(session_check, 5);
}

static void every_allocation_of_score(void **state)
{
    (void)state;
    run_out_of_memory(session_score, 5);
}

/* The list makes each model of the catalogue: a few budgets instead of all. */
static void the_list_of_models_may_fail(void **state)
{
    static const size_t budgets[] = { 0, 1, 2, 3, 5, 20, 50, 100, 200, 300 };
    (void)state;
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        struct budget budget = { budgets[i], 0 };
        const memplan_allocator a = { limited, &budget };
        size_t n = 0;
        const memplan_status status =
            memplan_models_write(&styles[i % STYLES], add_length, &n, &a, NULL);
        assert_true(status == MEMPLAN_OK || status == MEMPLAN_E_NOMEM);
        assert_true((n > 0) == (status == MEMPLAN_OK));
        assert_int_equal(budget.alive, 0);
        if (budgets[i] < 20)
            assert_int_equal(status, MEMPLAN_E_NOMEM);
    }
}

static bool count_lines(void *ctx, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        *(size_t *)ctx += text[i] == '\n';
    return true;
}

/* As CSV: a header, and a line a model. */
static void the_list_of_models_is_whole(void **state)
{
    (void)state;
    size_t models = 0, lines = 0;
    while (memplan_builtin_name(models) != NULL)
        models++;
    const memplan_style csv = { MEMPLAN_FORMAT_CSV, false, 0 };
    assert_int_equal(
        memplan_models_write(&csv, count_lines, &lines, NULL, NULL),
        MEMPLAN_OK);
    assert_int_equal(lines, models + 1);
}

/* ---- arguments that are missing ---- */

static memplan_error slot;
static memplan_errors errs;

static memplan_errors *no_errors(void)
{
    errs = (memplan_errors){ &slot, 1, 0 };
    return &errs;
}

/* Said once, with its status, whether or not there is room to say it. */
#define REFUSED(call_with_errs, call_without)                                  \
    do {                                                                       \
        assert_int_equal((call_with_errs), MEMPLAN_E_ARG);                     \
        assert_int_equal(errs.count, 1);                                       \
        assert_int_equal(slot.status, MEMPLAN_E_ARG);                          \
        assert_true(slot.message[0] != '\0');                                  \
        assert_int_equal((call_without), MEMPLAN_E_ARG);                       \
    } while (0)

static void models_need_arguments(void **state)
{
    (void)state;
    memplan_model *m = NULL;
    REFUSED(memplan_model_parse(NULL, "{}", 2, NULL, NULL, no_errors()),
            memplan_model_parse(NULL, "{}", 2, NULL, NULL, NULL));
    REFUSED(memplan_model_parse(&m, NULL, 2, NULL, NULL, no_errors()),
            memplan_model_parse(&m, NULL, 2, NULL, NULL, NULL));
    REFUSED(memplan_model_builtin(NULL, "gpt2", NULL, no_errors()),
            memplan_model_builtin(NULL, "gpt2", NULL, NULL));
    REFUSED(memplan_model_builtin(&m, NULL, NULL, no_errors()),
            memplan_model_builtin(&m, NULL, NULL, NULL));
    assert_null(m);
    memplan_model_free(NULL);
}

static void setups_need_arguments(void **state)
{
    (void)state;
    memplan_setup *s = NULL;
    REFUSED(memplan_setup_new(NULL, NULL, no_errors()),
            memplan_setup_new(NULL, NULL, NULL));
    assert_int_equal(memplan_setup_new(&s, NULL, NULL), MEMPLAN_OK);
    REFUSED(memplan_setup_set(NULL, "tp", "2", no_errors()),
            memplan_setup_set(NULL, "tp", "2", NULL));
    REFUSED(memplan_setup_set(s, NULL, "2", no_errors()),
            memplan_setup_set(s, NULL, "2", NULL));
    REFUSED(memplan_setup_set(s, "tp", NULL, no_errors()),
            memplan_setup_set(s, "tp", NULL, NULL));
    REFUSED(memplan_setup_parse(NULL, "{}", 2, no_errors()),
            memplan_setup_parse(NULL, "{}", 2, NULL));
    REFUSED(memplan_setup_parse(s, NULL, 2, no_errors()),
            memplan_setup_parse(s, NULL, 2, NULL));
    memplan_setup_free(s);
    memplan_setup_free(NULL);
}

static void reports_need_arguments(void **state)
{
    (void)state;
    memplan_model *m = NULL;
    memplan_setup *s = NULL;
    memplan_report *r = NULL;
    assert_int_equal(memplan_model_builtin(&m, "gpt2", NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&s, NULL, NULL), MEMPLAN_OK);
    REFUSED(memplan_estimate(NULL, m, s, NULL, no_errors()),
            memplan_estimate(NULL, m, s, NULL, NULL));
    REFUSED(memplan_estimate(&r, NULL, s, NULL, no_errors()),
            memplan_estimate(&r, NULL, s, NULL, NULL));
    REFUSED(memplan_estimate(&r, m, NULL, NULL, no_errors()),
            memplan_estimate(&r, m, NULL, NULL, NULL));
    REFUSED(memplan_compute(NULL, m, s, NULL, no_errors()),
            memplan_compute(NULL, m, s, NULL, NULL));
    REFUSED(memplan_compute(&r, m, NULL, NULL, no_errors()),
            memplan_compute(&r, m, NULL, NULL, NULL));
    assert_null(r);
    assert_int_equal(memplan_estimate(&r, m, s, NULL, NULL), MEMPLAN_OK);
    REFUSED(memplan_estimate_again(NULL, m, s, no_errors()),
            memplan_estimate_again(NULL, m, s, NULL));
    REFUSED(memplan_estimate_again(r, NULL, s, no_errors()),
            memplan_estimate_again(r, NULL, s, NULL));
    memplan_report_free(r);
    memplan_report_free(NULL);
    memplan_setup_free(s);
    memplan_model_free(m);
}

static void checks_need_arguments(void **state)
{
    (void)state;
    memplan_check *c = NULL;
    bool held = true;
    REFUSED(memplan_check_new(NULL, NULL, no_errors()),
            memplan_check_new(NULL, NULL, NULL));
    assert_int_equal(memplan_check_new(&c, NULL, NULL), MEMPLAN_OK);
    REFUSED(memplan_check_parse(&held, NULL, "{}", 2, NULL, NULL, no_errors()),
            memplan_check_parse(&held, NULL, "{}", 2, NULL, NULL, NULL));
    REFUSED(memplan_check_parse(&held, c, NULL, 2, NULL, NULL, no_errors()),
            memplan_check_parse(&held, c, NULL, 2, NULL, NULL, NULL));
    assert_false(held);
    memplan_check_free(c);
    memplan_check_free(NULL);
}

static void scores_need_arguments(void **state)
{
    (void)state;
    memplan_score *c = NULL;
    bool held = true;
    double median = 1;
    REFUSED(memplan_score_new(NULL, NULL, no_errors()),
            memplan_score_new(NULL, NULL, NULL));
    assert_int_equal(memplan_score_new(&c, NULL, NULL), MEMPLAN_OK);
    REFUSED(memplan_score_parse(NULL, "", 0, no_errors()),
            memplan_score_parse(NULL, "", 0, NULL));
    REFUSED(memplan_score_parse(c, NULL, 2, no_errors()),
            memplan_score_parse(c, NULL, 2, NULL));
    REFUSED(memplan_score_held(NULL, c, "2%", no_errors()),
            memplan_score_held(NULL, c, "2%", NULL));
    REFUSED(memplan_score_held(&held, c, "-2%", no_errors()),
            memplan_score_held(&held, c, "two", NULL));
    assert_false(held);
    REFUSED(
        memplan_score_write(NULL, NULL, NULL, add_length, NULL, no_errors()),
        memplan_score_write(c, NULL, NULL, NULL, NULL, NULL));
    assert_int_equal(memplan_score_median(&median, c, NULL, NULL),
                     MEMPLAN_E_UNKNOWN);
    assert_true(median < 1);
    memplan_score_free(c);
    memplan_score_free(NULL);
}

/* ---- after a failure ---- */

/* The report holds nothing then: no number, nothing that fits. */
static void a_failed_estimate_leaves_nothing(void **state)
{
    (void)state;
    memplan_model *m = NULL;
    memplan_setup *s = NULL;
    memplan_report *r = NULL;
    uint64_t bytes = 1;
    assert_int_equal(memplan_model_builtin(&m, "gpt2", NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&s, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&r, m, s, NULL, NULL), MEMPLAN_OK);
    assert_true(memplan_report_fits(r));
    assert_int_equal(memplan_setup_set(s, "tp", "5", NULL), MEMPLAN_OK);
    assert_int_equal(memplan_estimate_again(r, m, s, NULL), MEMPLAN_E_CONFLICT);
    assert_false(memplan_report_fits(r));
    assert_int_equal(memplan_report_bytes(&bytes, r, "memory.peak_allocated"),
                     MEMPLAN_E_UNKNOWN);
    assert_int_equal(bytes, 0);
    memplan_report_free(r);
    memplan_setup_free(s);
    memplan_model_free(m);
}

/* A specification that says how many parameters it has is held to it. */
static void published_counts_are_held(void **state)
{
    static const char text[] =
        "{\"memplan\": 1, \"name\": \"m\", \"model_type\": \"decoder\","
        "\"num_hidden_layers\": 2, \"hidden_size\": 64,"
        "\"num_attention_heads\": 4, \"intermediate_size\": 256,"
        "\"vocab_size\": 100, \"max_position_embeddings\": 64,"
        "\"parameters\": 1}";
    (void)state;
    memplan_model *m = NULL;
    memplan_errors *e = no_errors();
    assert_int_equal(memplan_model_parse(&m, text, strlen(text), NULL, NULL, e),
                     MEMPLAN_E_CONFLICT);
    assert_null(m);
    assert_string_equal(slot.pointer, "/parameters");
    assert_non_null(strstr(slot.message, "not the 1 "));
    assert_true(slot.hint[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_estimate),
        cmocka_unit_test(every_allocation_of_compute),
        cmocka_unit_test(every_allocation_of_a_model),
        cmocka_unit_test(every_allocation_of_check),
        cmocka_unit_test(every_allocation_of_score),
        cmocka_unit_test(every_allocation_of_find),
        cmocka_unit_test(the_list_of_models_may_fail),
        cmocka_unit_test(the_list_of_models_is_whole),
        cmocka_unit_test(models_need_arguments),
        cmocka_unit_test(setups_need_arguments),
        cmocka_unit_test(reports_need_arguments),
        cmocka_unit_test(checks_need_arguments),
        cmocka_unit_test(scores_need_arguments),
        cmocka_unit_test(a_failed_estimate_leaves_nothing),
        cmocka_unit_test(published_counts_are_held),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
