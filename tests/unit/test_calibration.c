/*
 * Calibration: constants with which steps were made are found again, a file
 * that was written is read, and what is wrong in one has its place.
 */
#include "memplan/memplan.h"
#include "plan/calibration.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT_MAX = 1 << 15, ERRORS = 4 };

static memplan_error slot[ERRORS];
static memplan_errors errs;

struct text {
    char p[TEXT_MAX];
    size_t n;
};

static bool append(void *ctx, const char *text, size_t len)
{
    struct text *t = ctx;
    assert_true(t->n + len < TEXT_MAX);
    memcpy(t->p + t->n, text, len);
    t->n += len;
    t->p[t->n] = '\0';
    return true;
}

static memplan_errors *fresh(void)
{
    errs = (memplan_errors){ slot, ERRORS, 0 };
    return &errs;
}

/* ---- steps of a cluster that is known ---- */

#define FILE_OF(constants)                                                     \
    "{\"schema\": \"memplan.calibration/1\", \"gpu\": \"a100-80gb\", "         \
    "\"rows\": 1, \"constants\": {" constants "}}"

struct made {
    const char *model, *setup;
};

/* Of products, of attention, of element-wise kernels, of messages, of the
 * host's starts, each in turn the most. */
static const struct made made[] = {
    { "llama-13b", "\"seq_len\": 2048, \"micro_batch\": 4, \"gpus\": 8, "
                   "\"zero\": 3" },
    { "llama-7b", "\"seq_len\": 32768, \"gpus\": 8, \"zero\": 3" },
    { "gpt2", "\"seq_len\": 1024, \"micro_batch\": 16, "
              "\"attention\": \"eager\"" },
    { "llama-7b", "\"seq_len\": 512, \"gpus\": 64, \"zero\": 3" },
    { "gpt2", "\"seq_len\": 128, \"micro_batch\": 1" },
    { "llama-7b", "\"seq_len\": 4096, \"gpus\": 64, \"zero\": 3, "
                  "\"tp\": 1" },
};
enum { MADE = sizeof made / sizeof made[0] };

static double step_of(const struct made *m, const char *file)
{
    char text[512];
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    double x = 0;
    snprintf(text, sizeof text, "{\"gpu\": \"a100-80gb\", %s}", m->setup);
    assert_int_equal(memplan_model_builtin(&model, m->model, NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_parse(setup, text, strlen(text), fresh()),
                     MEMPLAN_OK);
    if (file != NULL
        && memplan_setup_calibrate(setup, file, strlen(file), "f", fresh())
               != MEMPLAN_OK)
        fail_msg("%s", slot[0].message);
    if (memplan_compute(&report, model, setup, NULL, fresh()) != MEMPLAN_OK)
        fail_msg("%s", slot[0].message);
    assert_int_equal(memplan_report_number(&x, report, "step_time_s"),
                     MEMPLAN_OK);
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return x;
}

static void put_row(struct text *t, size_t i, const char *file)
{
    char line[1024];
    const int n = snprintf(
        line, sizeof line,
        "{\"id\": \"r%zu\", \"group\": \"g\", \"kind\": \"throughput\", "
        "\"model\": \"%s\", \"setup\": {\"gpu\": \"a100-80gb\", %s}, "
        "\"measured\": {\"metric\": \"step_time_s\", \"value\": %.12g}}\n",
        i, made[i].model, made[i].setup, step_of(&made[i], file));
    append(t, line, (size_t)n);
}

static memplan_calibration *calibrated(const char *rows)
{
    memplan_calibration *c = NULL;
    assert_int_equal(memplan_calibration_new(&c, NULL, NULL), MEMPLAN_OK);
    if (memplan_calibration_parse(c, rows, strlen(rows), fresh()) != MEMPLAN_OK
        || memplan_calibration_fit(c, fresh()) != MEMPLAN_OK)
        fail_msg("%s", slot[0].message);
    return c;
}

static double number_of(const memplan_calibration *c, const char *name)
{
    double x = 0;
    assert_int_equal(memplan_calibration_number(&x, c, name), MEMPLAN_OK);
    return x;
}

/* ---- what is found ---- */

static const char known[] =
    FILE_OF("\"products\": 0.85, \"attention\": 0.7, \"memory\": 0.9, "
            "\"network\": 0.6, \"host\": 1.5");

static void known_constants_are_found(void **state)
{
    static const struct {
        const char *name;
        double value;
    } wanted[] = { { "products", 0.85 },
                   { "attention", 0.7 },
                   { "memory", 0.9 },
                   { "network", 0.6 },
                   { "host", 1.5 } };
    static struct text rows;
    (void)state;
    rows.n = 0;
    for (size_t i = 0; i < MADE; i++)
        put_row(&rows, i, known);
    memplan_calibration *c = calibrated(rows.p);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const double x = number_of(c, wanted[i].name);
        if (!(fabs(x / wanted[i].value - 1) < 0.02))
            fail_msg("%s is %g, not %g", wanted[i].name, x, wanted[i].value);
    }
    assert_true(number_of(c, "error.before") > 0.1);
    assert_true(number_of(c, "error.after") < 0.005);
    assert_true(number_of(c, "error.left_out") >= number_of(c, "error.after"));
    memplan_calibration_free(c);
}

/* What was written predicts what was fitted. */
static void files_are_read_again(void **state)
{
    static struct text rows, file;
    const memplan_style json = { .format = MEMPLAN_FORMAT_JSON };
    (void)state;
    rows.n = file.n = 0;
    for (size_t i = 0; i < MADE; i++)
        put_row(&rows, i, known);
    memplan_calibration *c = calibrated(rows.p);
    assert_int_equal(
        memplan_calibration_write(c, &json, append, &file, fresh()),
        MEMPLAN_OK);
    memplan_calibration_free(c);
    for (size_t i = 0; i < MADE; i++) {
        const double there = step_of(&made[i], known);
        assert_true(fabs(step_of(&made[i], file.p) / there - 1) < 0.01);
        assert_true(fabs(step_of(&made[i], NULL) / there - 1) > 0.01);
    }
}

/* A constant that a row does not tell of stays, and the others share. */
static void one_row_is_one_number(void **state)
{
    static struct text rows;
    double x;
    (void)state;
    rows.n = 0;
    put_row(&rows, 2, known);
    memplan_calibration *c = calibrated(rows.p);
    assert_true(number_of(c, "error.after") < 0.03);
    assert_true(fabs(number_of(c, "network") - 1) < 1e-12);
    assert_true(number_of(c, "products") < 1);
    assert_true(number_of(c, "memory") < 1);
    assert_int_equal(memplan_calibration_number(&x, c, "error.left_out"),
                     MEMPLAN_E_UNKNOWN);
    assert_int_equal(memplan_calibration_number(&x, c, "luck"),
                     MEMPLAN_E_UNKNOWN);
    memplan_calibration_free(c);
}

/* One row is shared out among the constants, and held near 1; of many, what
 * holds them there is outweighed. */
static void many_rows_outweigh_the_prior(void **state)
{
    static struct text rows;
    static const char slow[] = FILE_OF("\"memory\": 0.6");
    double moved[2];
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        rows.n = 0;
        for (size_t i = 0; i < (k == 0 ? 1 : MADE); i++)
            put_row(&rows, i, slow);
        memplan_calibration *c = calibrated(rows.p);
        moved[k] = number_of(c, "memory");
        memplan_calibration_free(c);
    }
    assert_true(moved[0] > 0.8);
    assert_true(fabs(moved[1] - 0.6) < 0.005);
    assert_true(fabs(moved[1] - 0.6) < 0.005);
}

/* ---- what is refused ---- */

#define ROW(kind, model, setup, more, measured)                                \
    "{\"id\": \"" model "\", \"group\": \"g\", \"kind\": \"" kind              \
    "\", \"model\": \"" model "\", \"setup\": {" setup "}, " more              \
    "\"measured\": {" measured "}}\n"
#define STEP "\"metric\": \"step_time_s\", \"value\": 1"
#define MEMORY "\"metric\": \"peak_allocated\", \"bytes\": 1e9"

static void rows_that_do_not_do(void **state)
{
    static const struct {
        const char *rows, *message, *hint;
        memplan_status status;
    } cases[] = {
        { "", "no measured step", "throughput", MEMPLAN_E_ARG },
        { ROW("memory", "gpt2", "", "", MEMORY), "no measured step",
          "throughput", MEMPLAN_E_ARG },
        { ROW("throughput", "gpt2", "\"tp\": 7", "", STEP), "no measured step",
          "gpt2", MEMPLAN_E_ARG },
        { ROW("throughput", "gpt2", "", "\"x-needs\": \"luck\", ", STEP),
          "no measured step", "x-needs", MEMPLAN_E_ARG },
        { ROW("throughput", "gpt2", "\"mfu\": 0.4", "", STEP),
          "no measured step", "'mfu'", MEMPLAN_E_ARG },
        { ROW("throughput", "gpt2", "", "", STEP)
              ROW("throughput", "llama-7b", "\"gpu\": \"h200\"", "", STEP),
          "'llama-7b' of h200", "of its own", MEMPLAN_E_CONFLICT },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memplan_calibration *c = NULL;
        assert_int_equal(memplan_calibration_new(&c, NULL, NULL), MEMPLAN_OK);
        assert_int_equal(memplan_calibration_parse(
                             c, cases[i].rows, strlen(cases[i].rows), fresh()),
                         MEMPLAN_OK);
        assert_int_equal(memplan_calibration_fit(c, fresh()), cases[i].status);
        assert_non_null(strstr(slot[0].message, cases[i].message));
        assert_non_null(strstr(slot[0].hint, cases[i].hint));
        assert_int_equal(memplan_calibration_write(c, NULL, append, NULL, NULL),
                         MEMPLAN_E_ARG);
        memplan_calibration_free(c);
    }
}

static void files_that_are_none(void **state)
{
    static const struct {
        const char *file, *message, *pointer;
        memplan_status status;
    } cases[] = {
        { "{", "", "", MEMPLAN_E_SYNTAX },
        { "[]", "an object", "", MEMPLAN_E_SCHEMA },
        { "{}", "no 'schema'", "", MEMPLAN_E_SCHEMA },
        { "{\"schema\": \"memplan.score/1\"}", "no calibration file", "/schema",
          MEMPLAN_E_SCHEMA },
        { "{\"schema\": \"memplan.calibration/1\", \"gpu\": \"h200\", "
          "\"rows\": 1}",
          "no 'constants'", "", MEMPLAN_E_SCHEMA },
        { "{\"schema\": \"memplan.calibration/1\", \"gpu\": \"tree\", "
          "\"rows\": 1, \"constants\": {}}",
          "'tree'", "/gpu", MEMPLAN_E_UNKNOWN },
        { "{\"schema\": \"memplan.calibration/1\", \"gpu\": \"h200\", "
          "\"rows\": 0, \"constants\": {}}",
          "1 or more", "/rows", MEMPLAN_E_RANGE },
        { FILE_OF("\"luck\": 1"), "no such constant", "/constants/luck",
          MEMPLAN_E_UNKNOWN },
        { FILE_OF("\"memory\": 0"), "from 0.01", "/constants/memory",
          MEMPLAN_E_RANGE },
        { FILE_OF("\"memory\": \"1\""), "from 0.01", "/constants/memory",
          MEMPLAN_E_RANGE },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memplan_setup *setup = NULL;
        memplan_score *score = NULL;
        const char *file = cases[i].file;
        assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
        assert_int_equal(memplan_score_new(&score, NULL, NULL), MEMPLAN_OK);
        assert_int_equal(
            memplan_score_calibrate(score, file, strlen(file), "f", fresh()),
            cases[i].status);
        assert_int_equal(
            memplan_setup_calibrate(setup, file, strlen(file), "f", fresh()),
            cases[i].status);
        assert_non_null(strstr(slot[0].message, cases[i].message));
        assert_string_equal(slot[0].pointer, cases[i].pointer);
        assert_int_equal(slot[0].line, 1);
        memplan_score_free(score);
        memplan_setup_free(setup);
    }
}

/* ---- what it is used for ---- */

static void other_gpus_are_named(void **state)
{
    static const char setup_text[] = "{\"gpu\": \"h200\"}";
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    (void)state;
    assert_int_equal(memplan_model_builtin(&model, "gpt2", NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(
        memplan_setup_parse(setup, setup_text, strlen(setup_text), NULL),
        MEMPLAN_OK);
    assert_int_equal(
        memplan_setup_calibrate(setup, known, strlen(known), "mine", NULL),
        MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&report, model, setup, NULL, fresh()),
                     MEMPLAN_E_CONFLICT);
    assert_non_null(strstr(slot[0].message, "'mine' is of a100-80gb"));
    assert_non_null(strstr(slot[0].message, "h200"));
    memplan_setup_free(setup);
    memplan_model_free(model);
}

static void scores_take_one(void **state)
{
    static const char other[] =
        ROW("throughput", "gpt2", "\"gpu\": \"h200\"", "", STEP);
    static struct text rows;
    memplan_score *score = NULL;
    double median = 1;
    (void)state;
    rows.n = 0;
    put_row(&rows, 1, known);
    assert_int_equal(memplan_score_new(&score, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(
        memplan_score_calibrate(score, known, strlen(known), "f", NULL),
        MEMPLAN_OK);
    append(&rows, other, strlen(other));
    assert_int_equal(memplan_score_parse(score, rows.p, rows.n, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_score_median(&median, score, NULL, NULL),
                     MEMPLAN_OK);
    assert_true(median < 1e-9);
    assert_int_equal(score->n_skipped, 1);
    assert_non_null(strstr(score->last->reason, "is of a100-80gb"));
    memplan_score_free(score);
}

/* ---- memory ---- */

static size_t allowed;

static void *limited(void *ctx, void *block, size_t old_size, size_t new_size)
{
    (void)ctx;
    (void)old_size;
    if (new_size == 0) {
        free(block);
        return NULL;
    }
    if (allowed == 0)
        return NULL;
    allowed--;
    return realloc(block, new_size);
}

static void every_allocation_may_fail(void **state)
{
    const memplan_allocator alloc = { limited, NULL };
    static struct text rows;
    memplan_status status = MEMPLAN_E_NOMEM;
    size_t n = 0;
    (void)state;
    rows.n = 0;
    put_row(&rows, 4, known);
    for (; status == MEMPLAN_E_NOMEM && n < 1000; n++) {
        memplan_calibration *c = NULL;
        allowed = n;
        status = memplan_calibration_new(&c, &alloc, NULL);
        if (status == MEMPLAN_OK)
            status = memplan_calibration_parse(c, rows.p, rows.n, NULL);
        if (status == MEMPLAN_OK)
            status = memplan_calibration_fit(c, NULL);
        memplan_calibration_free(c);
    }
    assert_int_equal(status, MEMPLAN_OK);
    assert_true(n > 4);
}

/* ---- the simplex ---- */

static double valley(void *ctx, const double *x)
{
    (void)ctx;
    const double a = 1 - x[0], b = x[1] - x[0] * x[0];
    return a * a + 100 * b * b;
}

static void a_bent_valley_is_walked(void **state)
{
    double x[2] = { -1.2, 1 };
    (void)state;
    const double least =
        descend(&(struct descent){ valley, NULL, 2, 0.5, 400 }, x);
    assert_true(least < 1e-10);
    assert_true(fabs(x[0] - 1) < 1e-4 && fabs(x[1] - 1) < 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_constants_are_found),
        cmocka_unit_test(files_are_read_again),
        cmocka_unit_test(one_row_is_one_number),
        cmocka_unit_test(many_rows_outweigh_the_prior),
        cmocka_unit_test(rows_that_do_not_do),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(other_gpus_are_named),
        cmocka_unit_test(scores_take_one),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_bent_valley_is_walked),
    };
    return cmocka_run_group_tests_name("calibration", tests, NULL, NULL);
}
