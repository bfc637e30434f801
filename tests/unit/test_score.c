/*
 * Scores: what a row of each kind is compared with, how errors are counted,
 * what is skipped, and every mistake that a line can have, with its place.
 */
#include "memplan/memplan.h"
#include "plan/score.h"
#include "json/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT_MAX = 1 << 16, ERRORS = 8 };

static memplan_error slot[ERRORS];
static memplan_errors errs;
static memplan_score *score;

static int new_score(void **state)
{
    (void)state;
    errs = (memplan_errors){ slot, ERRORS, 0 };
    return memplan_score_new(&score, NULL, NULL) == MEMPLAN_OK ? 0 : -1;
}

static int free_score(void **state)
{
    (void)state;
    memplan_score_free(score);
    score = NULL;
    return 0;
}

static memplan_status parse(const char *text)
{
    return memplan_score_parse(score, text, strlen(text), &errs);
}

#define ROW(kind, more, measured)                                              \
    "{\"id\": \"a\", \"group\": \"g\", \"kind\": \"" kind                      \
    "\", \"model\": \"llama-7b\", " more "\"measured\": {" measured "}}\n"
#define PLAIN "\"setup\": {\"gpus\": 64, \"zero\": 3}, "
#define PIPED                                                                  \
    "\"setup\": {\"framework\": \"megatron\", \"gpus\": 8, \"pp\": 4, "        \
    "\"grad_accum\": 8}, "
#define BYTES(metric, n) "\"metric\": \"" metric "\", \"bytes\": " n

/* ---- what is predicted ---- */

static const struct score_row *only_row(const char *text)
{
    free_score(NULL);
    assert_int_equal(new_score(NULL), 0);
    if (parse(text) != MEMPLAN_OK)
        fail_msg("%s", slot[0].message);
    assert_int_equal(score->n_rows, 1);
    if (score->first->reason)
        fail_msg("%s", score->first->reason);
    return score->first;
}

static memplan_report *estimate(const char *setup_text)
{
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    assert_int_equal(memplan_model_builtin(&model, "llama-7b", NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(
        memplan_setup_parse(setup, setup_text, strlen(setup_text), NULL),
        MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&report, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return report;
}

static void assert_near(double x, double y)
{
    if (!(fabs(x - y) <= 1e-9 * fabs(y)))
        fail_msg("%g is not %g", x, y);
}

static void same_as(const char *row, const char *setup, const char *path)
{
    memplan_report *r = estimate(setup);
    double x = 0;
    assert_int_equal(memplan_report_number(&x, r, path), MEMPLAN_OK);
    assert_near(only_row(row)->predicted, x);
    memplan_report_free(r);
}

static void memory_is_the_estimate(void **state)
{
    static const char plain[] = "{\"gpus\": 64, \"zero\": 3}";
    static const char piped[] =
        "{\"framework\": \"megatron\", \"gpus\": 8, \"pp\": 4, "
        "\"grad_accum\": 8}";
    (void)state;
    same_as(ROW("memory", PLAIN, BYTES("peak_allocated", "1e9")), plain,
            "memory.peak_allocated");
    same_as(ROW("memory", PLAIN, BYTES("steady_allocated", "1e9")), plain,
            "memory.steady_allocated");
    same_as(ROW("memory", PLAIN, BYTES("peak_reserved", "1e9")), plain,
            "memory.peak_reserved");
    same_as(ROW("memory", PLAIN, BYTES("device_total", "1e9")), plain,
            "memory.device_total");
    same_as(ROW("memory", PIPED, BYTES("peak_allocated", "1e9")), piped,
            "memory.peak_allocated");
    same_as(ROW("memory", PIPED "\"rank\": \"last-stage\", ",
                BYTES("peak_allocated", "1e9")),
            piped, "memory.stages[3].peak_allocated");
    same_as(ROW("memory", PIPED "\"rank\": \"first-stage\", ",
                BYTES("steady_allocated", "1e9")),
            piped, "memory.stages[0].steady_allocated");
}

static void throughput_is_that_of_compute(void **state)
{
    static const char setup[] = "{\"gpus\": 8, \"zero\": 3, \"mfu\": 0.4}";
    static const char row[] = "\"setup\": {\"gpus\": 8, \"zero\": 3, "
                              "\"mfu\": 0.4}, ";
    char text[512];
    (void)state;
    memplan_report *r = estimate(setup);
    const struct compute_result *c = &r->compute;
    const struct {
        const char *measured;
        double predicted;
    } rows[] = {
        { "\"metric\": \"step_time_s\", \"value\": 1", c->step_time_s },
        { "\"metric\": \"tokens_per_s_per_gpu\", \"value\": 1",
          c->tokens_per_s / 8 },
        { "\"metric\": \"mfu\", \"value\": 1", 0.4 },
        { "\"metric\": \"mfu\", \"value\": 1, \"flops_convention\": \"full\"",
          0.4 * c->flops_per_token_full / c->flops_per_token },
        { "\"metric\": \"tflops_per_gpu\", \"value\": 1, "
          "\"flops_convention\": \"hardware\"",
          c->hfu * c->peak_flop_s / 1e12 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, ROW("throughput", "%s", "%s"), row,
                 rows[i].measured);
        assert_near(only_row(text)->predicted, rows[i].predicted);
    }
    memplan_report_free(r);
}

static void what_fits_is_right_or_wrong(void **state)
{
    (void)state;
    const struct score_row *row = only_row(ROW("fit", PLAIN, "\"fits\": true"));
    assert_true(row->predicted > 0 && score_is_right(row));
    assert_false(score_has_error(row));
    row = only_row(ROW("fit", "\"setup\": {}, ", "\"fits\": true"));
    assert_false(row->predicted > 0 || score_is_right(row));
    row = only_row(ROW("oom", "\"setup\": {}, ", "\"fits\": false"));
    assert_true(score_is_right(row));
}

/* ---- statistics ---- */

/* Ten rows of one prediction p, measured as p, p / 2, ... p / 10. */
static void statistics(void **state)
{
    const double p =
        only_row(ROW("memory", PLAIN, BYTES("peak_allocated", "1e9")))
            ->predicted;
    struct arena a;
    struct score_list groups;
    char text[512];
    double median = 0;
    bool held = true;
    (void)state;
    free_score(NULL);
    assert_int_equal(new_score(NULL), 0);
    for (int i = 10; i > 0; i--) {
        snprintf(text, sizeof text,
                 ROW("memory", PLAIN, BYTES("peak_allocated", "%.0f")),
                 floor(p / i));
        assert_int_equal(parse(text), MEMPLAN_OK);
    }
    arena_init(&a, NULL);
    assert_true(score_group(&groups, &a, score, BY_GROUP));
    assert_int_equal(groups.n, 1);
    const struct score_group *g = groups.item[0];
    assert_int_equal(g->stats.count, 10);
    /* errors are 0, 1, ... 9 */
    assert_true(fabs(g->stats.median - 4.5) < 1e-6);
    assert_true(fabs(g->stats.p90 - 8) < 1e-6);
    assert_true(fabs(g->stats.worst - 9) < 1e-6);
    assert_true(fabs(g->stats.bias - 4.5) < 1e-6);
    arena_release(&a);
    assert_int_equal(memplan_score_median(&median, score, "g", NULL),
                     MEMPLAN_OK);
    assert_true(fabs(median - 4.5) < 1e-6);
    assert_int_equal(memplan_score_median(&median, score, "g", "mfu"),
                     MEMPLAN_E_UNKNOWN);
    assert_int_equal(memplan_score_held(&held, score, "451%", &errs),
                     MEMPLAN_OK);
    assert_true(held);
    assert_int_equal(memplan_score_held(&held, score, "4.49", &errs),
                     MEMPLAN_OK);
    assert_false(held);
}

/* Rows that need something: a group of their own, and in no overall figure. */
static void needs_stand_apart(void **state)
{
    struct arena a;
    struct score_list groups, notes;
    double median = 0;
    (void)state;
    assert_int_equal(
        parse(ROW("memory", PLAIN "\"x-needs\": [\"one\", \"two\"], ",
                  BYTES("peak_allocated", "1e9"))
                  ROW("memory", PLAIN "\"x-needs\": \"a thing\", ",
                      BYTES("peak_allocated", "1e9"))),
        MEMPLAN_OK);
    assert_int_equal(memplan_score_median(&median, score, NULL, NULL),
                     MEMPLAN_E_UNKNOWN);
    arena_init(&a, NULL);
    assert_true(score_group(&groups, &a, score, BY_METRIC));
    assert_true(score_notes(&notes, &a, &groups));
    assert_int_equal(groups.n, 2);
    assert_int_equal(notes.n, 2);
    const struct score_group *g = groups.item[0];
    assert_string_equal(g->name, "peak_allocated (needs one, two)");
    assert_int_equal(*g->note, 2);
    arena_release(&a);
}

/* ---- other estimators ---- */

#define PEER(id, name, n)                                                      \
    "{\"id\": \"" id "\", \"kind\": \"peer\", \"peer\": \"" name "\", "        \
    "\"bytes\": " n "}\n"
#define NAMED(id, more, n)                                                     \
    "{\"id\": \"" id "\", \"group\": \"g\", \"kind\": \"memory\", "            \
    "\"model\": \"llama-7b\", " more                                           \
    "\"measured\": {" BYTES("peak_allocated", n) "}}\n"

/* Figures come before or after their rows, and only those of rows that are
 * predicted and need nothing count. */
static void peers_are_held_against_the_same_rows(void **state)
{
    struct arena a;
    struct score_list peers;
    (void)state;
    assert_int_equal(
        parse(PEER("b", "one", "3e10") PEER("none", "one", "1")
                  NAMED("a", PLAIN, "2e10") NAMED("b", PLAIN, "2e10")
                      NAMED("c", PLAIN "\"x-needs\": \"x\", ", "1e9")
                          NAMED("d", "\"setup\": {\"tp\": 7}, ", "1e9")
                              PEER("d", "one", "5") PEER("c", "one", "5") PEER(
                                  "a", "two", "1e10") PEER("a", "one", "1e10")),
        MEMPLAN_OK);
    assert_int_equal(score->n_rows, 4);
    arena_init(&a, NULL);
    assert_true(score_peers(&peers, &a, score));
    assert_int_equal(peers.n, 2);
    const struct score_peer_group *g = peers.item[0];
    assert_string_equal(g->name, "one");
    assert_string_equal(g->group, "g");
    assert_int_equal(g->theirs.count, 2);
    assert_near(g->theirs.median, 0.5);
    assert_true(fabs(g->theirs.bias) < 1e-12);
    assert_near(g->ours.median, fabs(score->first->error));
    g = peers.item[1];
    assert_string_equal(g->name, "two");
    assert_int_equal(g->theirs.count, 1);
    assert_near(g->theirs.bias, -0.5);
    arena_release(&a);
}

/* ---- remarks ---- */

#define REMARK(id, more)                                                       \
    "{\"id\": \"" id "\", \"kind\": \"remark\", \"why\": \"so\"" more "}\n"

/* Before or after its row; a doubtful row is in no overall figure. */
static void remarks_find_their_rows(void **state)
{
    double median;
    (void)state;
    assert_int_equal(parse(REMARK("b", "") NAMED("a", PLAIN, "2e10")
                               NAMED("b", PLAIN, "3e10") REMARK("none", "")),
                     MEMPLAN_OK);
    const struct score_row *a = score->first, *b = a->next;
    assert_string_equal(a->why, "");
    assert_string_equal(b->why, "so");
    assert_string_equal(b->needs, "");
    assert_int_equal(parse(REMARK("a", ", \"doubtful\": true")), MEMPLAN_OK);
    assert_string_equal(a->why, "so");
    assert_string_equal(a->needs, "doubtful figure: so");
    assert_int_equal(memplan_score_median(&median, score, NULL, NULL),
                     MEMPLAN_OK);
    assert_near(median, fabs(b->error));
}

static void features_are_of_memory_rows(void **state)
{
    struct arena a;
    struct score_list features;
    (void)state;
    assert_int_equal(parse(NAMED("a", PLAIN, "2e10") NAMED("b", PIPED, "3e10")
                               NAMED("c", PIPED "\"x-needs\": \"x\", ", "3e10")
                                   ROW("oom", PLAIN, "\"fits\": false")),
                     MEMPLAN_OK);
    arena_init(&a, NULL);
    assert_true(score_features(&features, &a, score));
    bool pp4 = false;
    for (size_t i = 0; i < features.n; i++) {
        const struct score_group *g = features.item[i];
        assert_true(g->stats.count <= 2 && g->stats.has_error);
        pp4 = pp4 || (strcmp(g->label, "pp 4") == 0 && g->stats.count == 1);
    }
    assert_true(pp4);
    arena_release(&a);
}

/* ---- what is skipped ---- */

static void what_is_not_modelled_is_skipped(void **state)
{
    struct arena a;
    struct score_list reasons;
    (void)state;
    assert_int_equal(
        parse(
            ROW("memory", "\"setup\": {\"tp\": 7}, ",
                BYTES("peak_allocated", "1"))
                ROW("memory", "\"setup\": {\"no_key\": 7}, ",
                    BYTES(
                        "peak_allocated",
                        "1")) "\r\n\n"
                              "{\"id\": \"b\", \"group\": \"g\", \"kind\": \"oom\","
                              "\"model\": {\"model_type\": \"x\"}, \"setup\": {},"
                              "\"tier\": \"A\", \"measured\": {\"fits\": false}}\n" ROW(
                                  "memory", "\"setup\": {\"tp\": 7}, ",
                                  BYTES("peak_allocated", "1"))),
        MEMPLAN_OK);
    assert_int_equal(errs.count, 0);
    assert_int_equal(score->n_rows, 4);
    assert_int_equal(score->n_skipped, 4);
    arena_init(&a, NULL);
    assert_true(score_reasons(&reasons, &a, score));
    assert_int_equal(reasons.n, 3);
    const struct score_reason *most = reasons.item[0];
    assert_int_equal(most->count, 2);
    arena_release(&a);
}

/* ---- mistakes ---- */

static const struct {
    const char *text, *pointer, *message;
    memplan_status status;
} mistakes[] = {
    { "{\"id\": }", "", "expected", MEMPLAN_E_SYNTAX },
    { "[1]", "", "a row is an object", MEMPLAN_E_SCHEMA },
    { "{\"id\": 1, \"id\": 1}", "/id", "on this line", MEMPLAN_E_SCHEMA },
    { "{}", "", "there is no 'id'", MEMPLAN_E_SCHEMA },
    { "{\"id\": 3}", "/id", "is a text, not a number", MEMPLAN_E_SCHEMA },
    { "{\"id\": \"\"}", "/id", "not an empty one", MEMPLAN_E_SCHEMA },
    { "{\"kind\": \"peer\", \"id\": \"a\", \"peer\": \"p\"}", "",
      "there is no 'bytes'", MEMPLAN_E_SCHEMA },
    { "{\"kind\": \"peer\", \"id\": \"a\", \"peer\": \"p\", \"bytes\": -1}",
      "/bytes", "whole number above 0", MEMPLAN_E_RANGE },
    { "{\"kind\": \"peer\", \"id\": \"a\", \"peers\": \"p\", \"bytes\": 1}",
      "/peers", "no key 'peers'", MEMPLAN_E_UNKNOWN },
    { "{\"kind\": \"remark\", \"id\": \"a\"}", "", "there is no 'why'",
      MEMPLAN_E_SCHEMA },
    { REMARK("a", ", \"doubtful\": 1"), "/doubtful", "true or false",
      MEMPLAN_E_SCHEMA },
    { ROW("odd", PLAIN, ""), "/kind", "'kind' is not 'odd'",
      MEMPLAN_E_UNKNOWN },
    { ROW("memory", PLAIN "\"rank\": \"mid\", ", BYTES("mfu", "1")), "/rank",
      "'rank' is not 'mid'", MEMPLAN_E_UNKNOWN },
    { ROW("memory", PLAIN, BYTES("mfu", "1")), "/measured/metric",
      "'metric' is not 'mfu'", MEMPLAN_E_UNKNOWN },
    { ROW("memory", PLAIN, BYTES("device_total", "0")), "/measured/bytes",
      "whole number above 0", MEMPLAN_E_RANGE },
    { ROW("memory", PLAIN, BYTES("device_total", "1.5")), "/measured/bytes",
      "whole number above 0", MEMPLAN_E_RANGE },
    { ROW("throughput", PLAIN, "\"metric\": \"mfu\", \"value\": \"1\""),
      "/measured/value", "number above 0", MEMPLAN_E_RANGE },
    { ROW("throughput", PLAIN, "\"metric\": \"mfu\", \"value\": Infinity"),
      "/measured/value", "number above 0", MEMPLAN_E_RANGE },
    { ROW("throughput", PLAIN, "\"metric\": \"mfu\""), "/measured",
      "there is no 'value'", MEMPLAN_E_SCHEMA },
    { ROW("throughput", PLAIN,
          "\"metric\": \"mfu\", \"value\": 1, \"flops_convention\": 1"),
      "/measured/flops_convention", "is a text", MEMPLAN_E_SCHEMA },
    { ROW("fit", PLAIN, "\"fits\": 1"), "/measured/fits", "true or false",
      MEMPLAN_E_SCHEMA },
    { ROW("fit", PLAIN, "\"fits\": false"), "/measured/fits", "opposite",
      MEMPLAN_E_CONFLICT },
    { ROW("fit", PLAIN "\"x-needs\": [1], ", "\"fits\": true"), "/x-needs/0",
      "is a text", MEMPLAN_E_SCHEMA },
    { ROW("fit", "\"setup\": 1, ", "\"fits\": true"), "/setup",
      "an object of keys", MEMPLAN_E_SCHEMA },
    { "{\"id\": \"a\", \"group\": \"g\", \"kind\": \"fit\", \"model\": 1, "
      "\"setup\": {}, \"measured\": {\"fits\": true}}",
      "/model", "a name or a specification", MEMPLAN_E_SCHEMA },
    { "{\"id\": \"a\", \"group\": \"g\", \"kind\": \"fit\", \"model\": "
      "\"gpt2\", \"setup\": {}, \"measured\": true}",
      "/measured", "'measured' is an object", MEMPLAN_E_SCHEMA },
    { ROW("fit", PLAIN "\"rnak\": \"max\", ", "\"fits\": true"), "/rnak",
      "there is no key 'rnak'", MEMPLAN_E_UNKNOWN },
};

static void mistakes_have_their_place(void **state)
{
    char text[1024];
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        errs.count = 0;
        snprintf(text, sizeof text, "%s\n%s",
                 ROW("fit", PLAIN, "\"fits\": true"), mistakes[i].text);
        assert_int_equal(parse(text), mistakes[i].status);
        assert_true(errs.count > 0);
        assert_int_equal(slot[0].line, 3);
        assert_string_equal(slot[0].pointer, mistakes[i].pointer);
        assert_true(slot[0].offset >= strlen(text) - strlen(mistakes[i].text));
        if (!strstr(slot[0].message, mistakes[i].message))
            fail_msg("'%s' is not '%s'", slot[0].message, mistakes[i].message);
    }
    assert_int_equal(score->n_rows, sizeof mistakes / sizeof mistakes[0]);
}

/* ---- output ---- */

struct text {
    size_t n;
    char p[TEXT_MAX];
};

static bool append(void *ctx, const char *text, size_t len)
{
    struct text *t = ctx;
    assert_true(t->n + len < TEXT_MAX);
    memcpy(t->p + t->n, text, len);
    t->n += len;
    return true;
}

static bool refuse(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    (void)text;
    (void)len;
    return false;
}

static void json_is_valid(void **state)
{
    static const char rows[] = ROW("memory", PLAIN,
                                   BYTES("device_total", "1e9"))
        ROW("oom", PLAIN "\"x-needs\": \"\\\"\\u0001\", ", "\"fits\": false")
            ROW("memory", "\"setup\": {\"tp\": 7}, ", BYTES("mfu", "1"));
    static struct text text;
    struct arena a;
    struct diag d;
    (void)state;
    assert_int_equal(parse(rows), MEMPLAN_E_UNKNOWN);
    text.n = 0;
    const memplan_style json = { MEMPLAN_FORMAT_JSON, false, 0 };
    assert_int_equal(
        memplan_score_write(score, NULL, &json, append, &text, &errs),
        MEMPLAN_OK);
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const struct json *root = json_parse(&a, text.p, text.n, &d);
    assert_non_null(root);
    assert_string_equal(json_member(root, "schema")->text.p, "memplan.score/1");
    assert_int_equal(json_member(root, "groups")->kind, JSON_ARRAY);
    arena_release(&a);
}

static void writing_may_fail(void **state)
{
    (void)state;
    errs.count = 0;
    assert_int_equal(
        memplan_score_write(score, "colour", NULL, refuse, NULL, &errs),
        MEMPLAN_E_UNKNOWN);
    assert_non_null(strstr(slot[0].message, "'colour'"));
    assert_non_null(strstr(slot[0].hint, "framework"));
    assert_int_equal(
        memplan_score_write(score, "tp", NULL, refuse, NULL, &errs),
        MEMPLAN_E_WRITE);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, new_score, free_score)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(memory_is_the_estimate),
        TEST(throughput_is_that_of_compute),
        TEST(what_fits_is_right_or_wrong),
        TEST(statistics),
        TEST(needs_stand_apart),
        TEST(peers_are_held_against_the_same_rows),
        TEST(remarks_find_their_rows),
        TEST(features_are_of_memory_rows),
        TEST(what_is_not_modelled_is_skipped),
        TEST(mistakes_have_their_place),
        TEST(json_is_valid),
        TEST(writing_may_fail),
    };
    return cmocka_run_group_tests_name("score", tests, NULL, NULL);
}
