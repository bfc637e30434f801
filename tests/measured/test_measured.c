/*
 * Predictions against published memory figures of real runs (memory.jsonl,
 * each row with its source). Prints the error table that README.md shows, and
 * fails when a group's median error grows past what it was.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "plan/report_data.h"
#include "json/json.h"

enum { TEXT_MAX = 1 << 20, ROWS_MAX = 256 };

static char text[TEXT_MAX];

struct row {
    char group[64];
    double error; /* predicted / measured - 1 */
};

static struct row rows[ROWS_MAX];
static size_t n_rows;

static const char *word(const struct json *o, const char *key)
{
    const struct json *m = json_member(o, key);
    return m == NULL ? "" : m->text.p;
}

/* The text of an object: no string of a model holds a brace. */
static size_t object_length(const char *p)
{
    size_t n = 0;
    int depth = 0;
    do {
        depth += p[n] == '{' ? 1 : p[n] == '}' ? -1 : 0;
        n++;
    } while (depth > 0);
    return n;
}

static memplan_model *model_of(const struct json *row, const char *line)
{
    const struct json *m = json_member(row, "model");
    memplan_model *model = NULL;
    memplan_error slot[1];
    memplan_errors errs = { slot, 1, 0 };
    const char *at = line + m->offset;
    const memplan_status st =
        m->kind == JSON_STRING
            ? memplan_model_builtin(&model, m->text.p, NULL, &errs)
            : memplan_model_parse(&model, at, object_length(at), NULL, NULL,
                                  &errs);
    if (st != MEMPLAN_OK)
        fail_msg("%s: %s", word(row, "id"), slot[0].message);
    return model;
}

static double predicted(const memplan_report *r, const struct json *row)
{
    const char *metric = word(json_member(row, "measured"), "metric");
    char path[96];
    if (strcmp(word(row, "rank"), "last-stage") == 0)
        snprintf(path, sizeof path, "memory.stages[%llu].%s",
                 (unsigned long long)r->memory.n_stages - 1, metric);
    else
        snprintf(path, sizeof path, "memory.%s", metric);
    double v = 0;
    if (memplan_report_number(&v, r, path) != MEMPLAN_OK)
        fail_msg("%s: no %s", word(row, "id"), path);
    return v;
}

static void score(const char *line, size_t len)
{
    struct arena a;
    struct diag d;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const struct json *row = json_parse(&a, line, len, &d);
    assert_non_null(row);
    memplan_model *model = model_of(row, line);
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(
        setup_parse(&setup->setup, json_member(row, "setup"), line, len, &d),
        MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&report, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    const struct json *m = json_member(row, "measured");
    struct row *out = &rows[n_rows++];
    snprintf(out->group, sizeof out->group, "%s, %s", word(row, "group"),
             word(m, "metric"));
    out->error = predicted(report, row) / json_member(m, "bytes")->number - 1;
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);
    arena_release(&a);
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double magnitude(double x)
{
    return x < 0 ? -x : x;
}

/* count, median, 90th percentile and worst |error| of a group, in percent. */
static double summary(const char *group)
{
    double e[ROWS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < n_rows; i++)
        if (strcmp(rows[i].group, group) == 0)
            e[n++] = 100 * magnitude(rows[i].error);
    assert_true(n > 0);
    qsort(e, n, sizeof e[0], by_size);
    const double median = (e[(n - 1) / 2] + e[n / 2]) / 2;
    printf("| %-34s | %4zu | %6.2f %% | %6.2f %% | %6.2f %% |\n", group, n,
           median, e[n * 9 / 10], e[n - 1]);
    return median;
}

static void test_rows(void **state)
{
    (void)state;
    FILE *f = fopen(MEMPLAN_SOURCE_DIR "/tests/measured/memory.jsonl", "rb");
    assert_non_null(f);
    const size_t len = fread(text, 1, sizeof text, f);
    fclose(f);
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        assert_non_null(end);
        score(text + at, (size_t)(end - text) - at);
        at = (size_t)(end - text) + 1;
    }
    /* the bounds are today's medians, rounded up */
    assert_true(summary("megatron-goldens, peak_allocated") < 2.5);
    assert_true(summary("simumax-b200, peak_allocated") < 2.0);
    assert_true(summary("zero-state-only, steady_allocated") < 1.0);
    assert_true(summary("peft, peak_reserved") < 2.0);
    assert_true(summary("peft, steady_allocated") < 6.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
