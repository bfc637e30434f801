/*
 * How far predicted steps may be from published ones: as they are, and with a
 * calibration fitted to some rows and held against the others. Which rows are
 * fitted to is said by the 32-bit FNV-1a hash of their ids, not chosen.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"
#include "plan/calibration.h"
#include "plan/score.h"

enum { TEXT_MAX = 1 << 20, FILE_MAX = 1 << 13, ROWS_MAX = 800 };

static memplan_error slot;
static memplan_errors errs;

static memplan_errors *fresh(void)
{
    errs = (memplan_errors){ &slot, 1, 0 };
    return &errs;
}

/* ---- rows, as the files have them: one a line ---- */

struct line {
    const char *text; /* not terminated */
    size_t len;
    uint32_t hash; /* of its id */
};

struct lines {
    struct line line[ROWS_MAX];
    size_t n;
};

static char single[TEXT_MAX], multi[TEXT_MAX];

static void read_text(char *text, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/measured/%s.jsonl",
             MEMPLAN_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(text, 1, TEXT_MAX - 1, f);
    fclose(f);
    assert_true(n > 0 && n < TEXT_MAX - 1);
    text[n] = '\0';
}

static int read_all(void **state)
{
    (void)state;
    read_text(single, "throughput");
    read_text(multi, "throughput-vtrain");
    return 0;
}

static bool has(const struct line *x, const char *what)
{
    const size_t n = strlen(what);
    for (size_t i = 0; i + n <= x->len; i++)
        if (memcmp(&x->text[i], what, n) == 0)
            return true;
    return false;
}

static uint32_t hash_of_id(const char *line)
{
    static const char before[] = "{\"id\": \"";
    uint32_t hash = 2166136261U;
    assert_memory_equal(line, before, sizeof before - 1);
    for (const char *c = line + sizeof before - 1; *c != '"'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619U;
    return hash;
}

/* The lines with both texts. */
static void take(struct lines *to, const char *text, const char *this,
                 const char *that)
{
    for (const char *at = text, *end; *at != '\0'; at = end + (*end == '\n')) {
        end = strchr(at, '\n');
        if (end == NULL)
            end = strchr(at, '\0');
        struct line x = { at, (size_t)(end - at), 0 };
        if (!has(&x, this) || !has(&x, that))
            continue;
        x.hash = hash_of_id(at);
        assert_true(to->n < ROWS_MAX);
        to->line[to->n++] = x;
    }
}

static int by_half_and_hash(const void *x, const void *y)
{
    const uint32_t a = ((const struct line *)x)->hash;
    const uint32_t b = ((const struct line *)y)->hash;
    if (a % 2 != b % 2)
        return a % 2 < b % 2 ? -1 : 1;
    return (a > b) - (a < b);
}

/* ---- their errors ---- */

struct errors {
    double mean, median, most; /* `most`: the 90th percentile */
};

static int by_number(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Of a step's time, where the row has a rate, too. */
static struct errors errors_of(const struct lines *rows, size_t from,
                               const char *file)
{
    static double error[ROWS_MAX];
    struct errors e = { 0, 0, 0 };
    memplan_score *score = NULL;
    size_t n = 0;
    assert_int_equal(memplan_score_new(&score, NULL, NULL), MEMPLAN_OK);
    if (file != NULL)
        assert_int_equal(
            memplan_score_calibrate(score, file, strlen(file), "file", fresh()),
            MEMPLAN_OK);
    for (size_t i = from; i < rows->n; i++)
        assert_int_equal(memplan_score_parse(score, rows->line[i].text,
                                             rows->line[i].len, fresh()),
                         MEMPLAN_OK);
    for (const struct score_row *r = score->first; r != NULL; r = r->next) {
        if (r->reason != NULL)
            fail_msg("%s: %s", r->id, r->reason);
        const double rate = r->measured / r->predicted;
        error[n] =
            fabs((r->metric == METRIC_STEP_TIME_S ? 1 / rate : rate) - 1);
        e.mean += error[n++];
    }
    assert_int_equal(n, rows->n - from);
    memplan_score_free(score);
    qsort(error, n, sizeof *error, by_number);
    e.mean /= (double)n;
    e.median = (error[(n - 1) / 2] + error[n / 2]) / 2;
    e.most = error[(9 * n + 9) / 10 - 1];
    return e;
}

struct file {
    char text[FILE_MAX];
    size_t n;
};

static bool append(void *ctx, const char *text, size_t len)
{
    struct file *f = ctx;
    assert_true(f->n + len < sizeof f->text);
    memcpy(f->text + f->n, text, len);
    f->n += len;
    f->text[f->n] = '\0';
    return true;
}

/* Of the first `n` rows. */
static void calibrate(struct file *to, const struct lines *rows, size_t n)
{
    memplan_style json = { 0 };
    memplan_calibration *c = NULL;
    json.format = MEMPLAN_FORMAT_JSON;
    to->n = 0;
    assert_int_equal(memplan_calibration_new(&c, NULL, NULL), MEMPLAN_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(memplan_calibration_parse(c, rows->line[i].text,
                                                   rows->line[i].len, fresh()),
                         MEMPLAN_OK);
    assert_int_equal(memplan_calibration_fit(c, fresh()), MEMPLAN_OK);
    assert_int_equal(memplan_calibration_write(c, &json, append, to, fresh()),
                     MEMPLAN_OK);
    memplan_calibration_free(c);
}

/* ---- what they may be ---- */

#define GROUP(name) "\"group\": \"" name "\""
#define GPU(name) "\"gpu\": \"" name "\""
#define ANY 1.0 /* what is held to another figure */

static void rows_of(struct lines *to, const char *this, const char *that)
{
    to->n = 0;
    take(to, single, this, that);
    take(to, multi, this, that);
    qsort(to->line, to->n, sizeof *to->line, by_half_and_hash);
}

static void hold(const char *name, struct errors e, struct errors most)
{
    if (e.mean > most.mean || e.median > most.median || e.most > most.most)
        fail_msg("%s: mean %.2f %%, median %.2f %%, 90 %% %.2f %%; at most "
                 "%.0f, %.0f, %.0f",
                 name, 100 * e.mean, 100 * e.median, 100 * e.most,
                 100 * most.mean, 100 * most.median, 100 * most.most);
}

static void steps_are_as_near_as_said(void **state)
{
    static const struct {
        const char *group, *other;
        size_t rows;
        struct errors most;
    } sets[] = {
        { GROUP("korthikanti-2022"), "", 8, { 0.03, ANY, ANY } },
        { GROUP("vtrain-multi"), "", 51, { 0.08, ANY, ANY } },
        { GROUP("simumax-b200"), "", 23, { 0.05, ANY, ANY } },
        { GROUP("llm-foundry"), GPU("a100-40gb"), 48, { ANY, 0.1, 0.2 } },
        { GROUP("llm-foundry"), GPU("a100-80gb"), 54, { ANY, 0.1, 0.2 } },
        { GROUP("llm-foundry"), GPU("h100-80gb"), 27, { ANY, 0.1, 0.2 } },
        { GROUP("torchtitan"),
          "\"precision\": \"bf16-mixed\"",
          13,
          { ANY, 0.08, 0.2 } },
    };
    static struct lines rows;
    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        rows_of(&rows, sets[i].group, sets[i].other);
        assert_int_equal(rows.n, sets[i].rows);
        hold(sets[i].group, errors_of(&rows, 0, NULL), sets[i].most);
    }
}

/* Fitted to five rows of a GPU, the even ones with the lowest hashes. */
static void five_rows_calibrate_a_gpu(void **state)
{
    static const char *const gpus[] = { GPU("a100-40gb"), GPU("a100-80gb"),
                                        GPU("h100-80gb") };
    static struct lines rows;
    static struct file file;
    (void)state;
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        rows_of(&rows, GROUP("llm-foundry"), gpus[i]);
        calibrate(&file, &rows, 5);
        hold(gpus[i], errors_of(&rows, 5, file.text),
             (struct errors){ ANY, 0.04, 0.09 });
    }
}

/* One file for all sizes and layouts: fitted to the even rows. */
static void half_the_rows_calibrate_the_others(void **state)
{
    static struct lines rows;
    static struct file file;
    size_t even = 0;
    (void)state;
    rows_of(&rows, GROUP("vtrain-multi"), "");
    while (even < rows.n && rows.line[even].hash % 2 == 0)
        even++;
    assert_in_range(even, 10, rows.n - 10);
    calibrate(&file, &rows, even);
    hold("vtrain-multi, calibrated", errors_of(&rows, even, file.text),
         (struct errors){ 0.05, ANY, ANY });
}

/* ... and fitted to all of them, also where each part of them is predicted by a
 * file of the others. */
static void one_file_calibrates_the_set(void **state)
{
    static struct lines rows;
    memplan_calibration *c = NULL;
    (void)state;
    rows_of(&rows, GROUP("vtrain-multi"), "");
    assert_int_equal(memplan_calibration_new(&c, NULL, NULL), MEMPLAN_OK);
    for (size_t i = 0; i < rows.n; i++)
        assert_int_equal(memplan_calibration_parse(c, rows.line[i].text,
                                                   rows.line[i].len, fresh()),
                         MEMPLAN_OK);
    assert_int_equal(memplan_calibration_fit(c, fresh()), MEMPLAN_OK);
    if (c->error.after > 0.05 || c->error.left_out > 0.05)
        fail_msg("%.2f %%, of parts left out %.2f %%", 100 * c->error.after,
                 100 * c->error.left_out);
    memplan_calibration_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_as_near_as_said),
        cmocka_unit_test(five_rows_calibrate_a_gpu),
        cmocka_unit_test(half_the_rows_calibrate_the_others),
        cmocka_unit_test(one_file_calibrates_the_set),
    };
    return cmocka_run_group_tests(tests, read_all, NULL);
}
