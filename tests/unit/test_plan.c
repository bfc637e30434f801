/*
 * The whole pipeline through the public header: published figures, sums that
 * must be exact, and every allocation failing once.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "fold/result.h"
#include "plan/report_data.h"
#include "plan/scaling.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static memplan_setup *setup_of(const char *const *pairs)
{
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    memplan_setup *setup = NULL;
    assert_int_equal(memplan_setup_new(&setup, NULL, &errs), MEMPLAN_OK);
    for (; *pairs != NULL; pairs += 2) {
        if (memplan_setup_set(setup, pairs[0], pairs[1], &errs) != MEMPLAN_OK)
            fail_msg("%s %s: %s", pairs[0], pairs[1], slot[0].message);
    }
    return setup;
}

#define SETUP(...) setup_of((const char *const[]){ __VA_ARGS__, NULL })

static memplan_report *estimate(const char *name, memplan_setup *setup)
{
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    memplan_model *model = NULL;
    memplan_report *report = NULL;
    assert_int_equal(memplan_model_builtin(&model, name, NULL, &errs),
                     MEMPLAN_OK);
    if (memplan_estimate(&report, model, setup, NULL, &errs) != MEMPLAN_OK)
        fail_msg("%s: %s", name, slot[0].message);
    memplan_model_free(model);
    memplan_setup_free(setup);
    return report;
}

static double number(const memplan_report *r, const char *path)
{
    double v = 0;
    if (memplan_report_number(&v, r, path) != MEMPLAN_OK)
        fail_msg("no number %s", path);
    return v;
}

static uint64_t bytes(const memplan_report *r, const char *path)
{
    uint64_t v = 0;
    if (memplan_report_bytes(&v, r, path) != MEMPLAN_OK)
        fail_msg("no bytes %s", path);
    return v;
}

static void near(double value, double expected, double tolerance)
{
    if (!(value >= expected * (1 - tolerance))
        || !(value <= expected * (1 + tolerance)))
        fail_msg("%.8g is not %.8g within %.3g", value, expected, tolerance);
}

/* ---- published figures ---- */

/* Rajbhandari et al. 2020, figure 1: 7.5B parameters, 64 GPUs, GB. */
static void test_zero_paper(void **state)
{
    (void)state;
    static const struct {
        const char *zero;
        double gb;
    } rows[] = { { "0", 120 }, { "1", 31.4 }, { "2", 16.6 }, { "3", 1.88 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        memplan_report *r = estimate(
            "zero-7.5b", SETUP("gpus", "64", "framework", "deepspeed", "zero",
                               rows[i].zero, "seq_len", "1024"));
        /* the figure has three digits */
        near((double)r->memory.stage[0].model_states / 1e9, rows[i].gb, 0.003);
        memplan_report_free(r);
    }
}

/* Table 1 of the same paper: model states by degree of data parallelism. */
static void test_zero_paper_degrees(void **state)
{
    (void)state;
    static const struct {
        const char *zero, *gpus;
        double gb;
    } rows[] = {
        { "0", "1", 120 },    { "1", "4", 52.5 },    { "1", "16", 35.6 },
        { "1", "256", 30.4 }, { "1", "1024", 30.1 }, { "2", "4", 41.3 },
        { "2", "16", 21.6 },  { "2", "256", 15.4 },  { "3", "4", 30.0 },
        { "3", "16", 7.5 },   { "3", "256", 0.47 },  { "3", "1024", 0.12 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        memplan_report *r = estimate(
            "zero-7.5b", SETUP("gpus", rows[i].gpus, "framework", "deepspeed",
                               "zero", rows[i].zero, "seq_len", "1024"));
        near((double)r->memory.stage[0].model_states / 1e9, rows[i].gb, 0.03);
        memplan_report_free(r);
    }
}

/* 13B on 260B tokens, A100 at 40 %: 2.028e22 FLOP, 45,139 GPU-hours, 269
 * GPUs for a week. */
static void test_compute(void **state)
{
    (void)state;
    memplan_setup *s = SETUP("params", "13B", "tokens", "260B", "gpu",
                             "a100-80gb", "days", "7", "mfu", "0.4");
    memplan_report *r = NULL;
    assert_int_equal(memplan_compute(&r, NULL, s, NULL, NULL), MEMPLAN_OK);
    near(number(r, "flops_6nd"), 2.028e22, 1e-9);
    near(number(r, "gpu_hours"), 45139, 1e-4);
    near(number(r, "gpus"), 269, 1e-9);
    memplan_report_free(r);
    memplan_setup_free(s);
}

static struct law_answers laws_of(const memplan_report *r)
{
    struct law_answers answers;
    report_laws(&answers, r);
    return answers;
}

/* Compute-optimal sizes against the worked table for each law. */
static void test_laws(void **state)
{
    (void)state;
    static const struct {
        const char *law, *budget;
        double params, tokens_per_param, tolerance;
    } rows[] = {
        { "besiroglu", "1e24", 96.0e9, 18.1, 0.01 },
        { "besiroglu", "1e20", 855e6, 22.8, 0.01 },
        { "hoffmann-1", "5.76e23", 67e9, 21.1, 0.02 },
        { "hoffmann-2", "6.88e23", 69e9, 23.9, 0.02 },
        { "muennighoff", "1e22", 9.2e9, 19.6, 0.01 },
        { "hoffmann-3", "5.76e23", 40.37e9, 58.9, 0.01 },
        { "hoffmann-3", "1e26", 425e9, 92.3, 0.01 },
        { "chinchilla", "5.76e23", 69.28e9, 20, 0.001 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        memplan_setup *s =
            SETUP("budget", rows[i].budget, "scaling_law", rows[i].law);
        memplan_report *r = NULL;
        assert_int_equal(memplan_compute(&r, NULL, s, NULL, NULL), MEMPLAN_OK);
        const struct law_answers answers = laws_of(r);
        const struct law_result *l = &answers.law[answers.chosen_law];
        near(l->params, rows[i].params, rows[i].tolerance);
        near(l->tokens_per_param, rows[i].tokens_per_param, rows[i].tolerance);
        memplan_report_free(r);
        memplan_setup_free(s);
    }
}

/* The law's tokens for a model are the tokens of the budget whose optimum the
 * model is, which is the model of so many tokens. */
static void test_law_inverse(void **state)
{
    (void)state;
    static const char *const laws[] = { "hoffmann-1", "hoffmann-2",
                                        "hoffmann-3", "besiroglu",
                                        "kaplan",     "chinchilla",
                                        "muennighoff" };
    for (size_t i = 0; i < COUNT(laws); i++) {
        memplan_setup *s = SETUP("params", "7B", "scaling_law", laws[i]);
        memplan_report *r = NULL;
        assert_int_equal(memplan_compute(&r, NULL, s, NULL, NULL), MEMPLAN_OK);
        const double tokens = laws_of(r).tokens_optimal;
        memplan_report_free(r);
        memplan_setup_free(s);
        char budget[40];
        snprintf(budget, sizeof budget, "%.17g", 6 * 7e9 * tokens);
        s = SETUP("budget", budget, "scaling_law", laws[i]);
        assert_int_equal(memplan_compute(&r, NULL, s, NULL, NULL), MEMPLAN_OK);
        const struct law_answers asked = laws_of(r);
        near(asked.law[asked.chosen_law].params, 7e9, 1e-6);
        memplan_report_free(r);
        memplan_setup_free(s);
        char given[40]; /* and the model is what the tokens alone ask for */
        snprintf(given, sizeof given, "%.0f", tokens);
        s = SETUP("tokens", given, "scaling_law", laws[i]);
        assert_int_equal(memplan_compute(&r, NULL, s, NULL, NULL), MEMPLAN_OK);
        near(r->compute.params, 7e9, 1e-6);
        memplan_report_free(r);
        memplan_setup_free(s);
    }
}

static memplan_report *solved(memplan_setup *s)
{
    memplan_report *r = NULL;
    assert_int_equal(memplan_compute(&r, NULL, s, NULL, NULL), MEMPLAN_OK);
    memplan_setup_free(s);
    return r;
}

/* Losses of the worked table [Besiroglu et al. 2024], and the way back. */
static void test_losses(void **state)
{
    (void)state;
    static const struct {
        const char *budget;
        double loss;
    } rows[] = { { "1e18", 3.489 }, { "1e20", 2.553 }, { "1e24", 1.959 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        memplan_report *r = solved(SETUP("budget", rows[i].budget));
        near(laws_of(r).loss, rows[i].loss, 5e-4);
        assert_true(fabs(laws_of(r).extra_training) < 1e-6);
        memplan_report_free(r);
    }
    memplan_report *r = solved(SETUP("target_loss", "1.959"));
    near(r->compute.flops_6nd, 1e24, 0.04); /* four digits of a loss */
    memplan_report_free(r);
}

/* L(N, D) of Kaplan et al. 2020, table 2, of a model and its tokens, and the way
 * back: the tokens, the model, and what costs least, nearby which all cost more. */
static void test_kaplan_loss(void **state)
{
    (void)state;
    const double n = 10e9, d = 100e9;
    const double loss = pow(pow(6.4e13 / n, 0.076 / 0.103) + 1.8e13 / d, 0.103);
    char target[40];
    snprintf(target, sizeof target, "%.12g", loss);
    memplan_report *r = solved(
        SETUP("params", "10B", "tokens", "100B", "scaling_law", "kaplan"));
    near(laws_of(r).loss, loss, 1e-6);
    memplan_report_free(r);
    r = solved(
        SETUP("params", "10B", "target_loss", target, "scaling_law", "kaplan"));
    near(r->compute.tokens, d, 1e-4);
    memplan_report_free(r);
    r = solved(SETUP("tokens", "100B", "target_loss", target, "scaling_law",
                     "kaplan"));
    near(r->compute.params, n, 1e-4);
    memplan_report_free(r);
    r = solved(SETUP("target_loss", target, "scaling_law", "kaplan"));
    const double least = r->compute.flops_6nd, best = r->compute.params;
    memplan_report_free(r);
    assert_true(least < 6 * n * d);
    for (int i = 0; i < 2; i++) {
        char params[40];
        snprintf(params, sizeof params, "%.0f", best * (i == 0 ? 0.9 : 1.1));
        r = solved(SETUP("params", params, "target_loss", target, "scaling_law",
                         "kaplan"));
        assert_true(r->compute.flops_6nd > least);
        memplan_report_free(r);
    }
}

/* A small model trained long costs more than its loss needs, and less once it
 * is served enough [Sardana et al. 2024]. */
static void test_over_training(void **state)
{
    (void)state;
    memplan_report *r = solved(SETUP("params", "8B", "tokens", "15T"));
    struct law_answers c = laws_of(r);
    assert_true(c.extra_training > 0.5 && c.extra_training < 5);
    assert_true(c.same_loss.params > 8e9 && c.same_loss.tokens < 15e12);
    near(scaling_loss(LAW_BESIROGLU, c.same_loss.params, c.same_loss.tokens,
                      &(struct law_question){ .tokens_per_param = 20 }),
         c.loss, 1e-9);
    const double least = c.same_loss.params;
    memplan_report_free(r);
    r = solved(
        SETUP("params", "8B", "tokens", "15T", "inference_tokens", "100T"));
    c = laws_of(r);
    assert_true(c.served.params < least);
    assert_true(c.served_flops <= c.served_flops_here);
    memplan_report_free(r);
}

/* Four epochs are nearly fresh data; forty are not [Muennighoff et al.
 * 2023]. */
static void test_repeated_data(void **state)
{
    (void)state;
    const struct law_question fresh = { .tokens_per_param = 20 };
    struct law_question few = fresh;
    few.unique_tokens = 25e9;
    const double once = scaling_loss(LAW_MUENNIGHOFF, 2e9, 100e9, &fresh);
    const double four = scaling_loss(LAW_MUENNIGHOFF, 2e9, 100e9, &few);
    few.unique_tokens = 2.5e9;
    const double forty = scaling_loss(LAW_MUENNIGHOFF, 2e9, 100e9, &few);
    assert_true(four > once && four - once < 0.02);
    assert_true(forty - once > 0.15);
    memplan_report *r = solved(SETUP("budget", "1e23", "unique_tokens", "50B",
                                     "scaling_law", "muennighoff"));
    memplan_report *free_data =
        solved(SETUP("budget", "1e23", "scaling_law", "muennighoff"));
    const struct law_answers seen = laws_of(r);
    const struct law_result *l = &seen.law[seen.chosen_law];
    assert_true(l->tokens > 50e9); /* it sees them again */
    assert_true(l->loss > laws_of(free_data).loss);
    memplan_report_free(r);
    memplan_report_free(free_data);
}

/* Of data seen again too a law's optimum is that of its own loss: nothing costs
 * less that reaches it. */
static void test_repeated_optimum(void **state)
{
    (void)state;
    static const char *const laws[] = { "hoffmann-3", "besiroglu",
                                        "muennighoff" };
    for (size_t i = 0; i < COUNT(laws); i++) {
        memplan_report *r = solved(SETUP("budget", "1e24", "unique_tokens",
                                         "100B", "scaling_law", laws[i]));
        const struct law_answers c = laws_of(r);
        assert_true(fabs(c.extra_training) < 1e-3);
        near(c.law[c.chosen_law].params, r->compute.params, 1e-6);
        near(c.tokens_optimal, r->compute.tokens, 1e-3);
        memplan_report_free(r);
    }
}

/* Numbers that no sum can hold are an error; what is merely absurd is an
 * answer, and never "fits". */
static void test_too_large(void **state)
{
    (void)state;
    static const struct {
        const char *micro_batch, *seq_len;
    } rows[] = { { "1", "1M" },        { "1", "100M" },    { "64", "1M" },
                 { "65536", "10000" }, { "65536", "1M" },  { "65536", "20M" },
                 { "65536", "50M" },   { "65536", "100M" } };
    unsigned answers = 0, refusals = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        memplan_setup *s = SETUP("micro_batch", rows[i].micro_batch, "seq_len",
                                 rows[i].seq_len);
        memplan_model *model = NULL;
        memplan_report *r = NULL;
        assert_int_equal(memplan_model_builtin(&model, "llama-7b", NULL, NULL),
                         MEMPLAN_OK);
        const memplan_status st = memplan_estimate(&r, model, s, NULL, NULL);
        assert_true(st == MEMPLAN_OK || st == MEMPLAN_E_OVERFLOW);
        if (st == MEMPLAN_OK) {
            assert_false(memplan_report_fits(r));
            assert_true(r->memory.headroom < 0);
            answers++;
        } else {
            refusals++;
        }
        memplan_report_free(r);
        memplan_model_free(model);
        memplan_setup_free(s);
    }
    assert_true(answers > 0 && refusals > 0);
}

/* A deadline's GPUs come in whole layouts, and batch and steps follow them. */
static void test_deadline_in_a_layout(void **state)
{
    (void)state;
    memplan_model *model = NULL;
    memplan_report *r = NULL;
    memplan_setup *s = SETUP("tokens", "2.6T", "days", "90", "mfu", "0.45",
                             "tp", "8", "pp", "5");
    assert_int_equal(memplan_model_builtin(&model, "130b", NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_compute(&r, model, s, NULL, NULL), MEMPLAN_OK);
    const double gpus = number(r, "gpus");
    assert_true(gpus > 1800 && gpus < 1900);
    assert_int_equal((uint64_t)gpus % 40, 0);
    assert_int_equal(r->run.dp, (uint64_t)gpus / 40);
    near(r->compute.tokens_per_step, gpus / 40 * 2048, 1e-9);
    assert_true(number(r, "days") <= 90);
    memplan_report_free(r);
    memplan_setup_free(s);
    memplan_model_free(model);
}

static memplan_report *computed(const char *name, memplan_setup *s)
{
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    memplan_model *model = NULL;
    memplan_report *r = NULL;
    assert_int_equal(memplan_model_builtin(&model, name, NULL, NULL),
                     MEMPLAN_OK);
    if (memplan_compute(&r, model, s, NULL, &errs) != MEMPLAN_OK)
        fail_msg("%s: %s", name, slot[0].message);
    memplan_model_free(model);
    memplan_setup_free(s);
    return r;
}

/* With a batch that is held GPUs share it evenly, in whole nodes; the fewest
 * that are enough; and where none is, the fastest, said as such. */
static void test_deadline_predicted(void **state)
{
    (void)state;
    memplan_report *r =
        computed("llama-13b", SETUP("tokens", "260B", "days", "7", "zero", "3",
                                    "global_batch", "1024"));
    assert_true(r->deadline.met);
    assert_int_equal(1024 % r->run.gpus, 0);
    assert_int_equal(r->run.gpus % 8, 0);
    assert_true(number(r, "days") <= 7);
    near(number(r, "deadline_gpus"), (double)r->run.gpus, 0);
    char half[16];
    snprintf(half, sizeof half, "%d", (int)r->run.gpus / 2);
    memplan_report *fewer =
        computed("llama-13b", SETUP("tokens", "260B", "zero", "3", "gpus", half,
                                    "global_batch", "1024"));
    assert_true(number(fewer, "days") > 7);
    memplan_report_free(fewer);
    memplan_report_free(r);

    r = computed("llama-13b", SETUP("tokens", "260B", "days", "0.5", "zero",
                                    "3", "global_batch", "1024"));
    assert_false(r->deadline.met);
    assert_true(number(r, "days") > 0.5);
    assert_int_equal(r->run.gpus, 1024);
    memplan_report_free(r);

    /* the other way round: days on these, and how many it would take */
    r = computed("llama-13b", SETUP("tokens", "260B", "days", "7", "zero", "3",
                                    "gpus", "64"));
    assert_int_equal(r->run.gpus, 64);
    assert_true(number(r, "days") > 7);
    assert_true(number(r, "deadline_gpus") > 64);
    assert_true(number(r, "deadline_gpus_days") <= 7);
    memplan_report_free(r);
}

/* Where whole nodes share a batch too few ways, parts of them are enough. */
static void test_deadline_parts(void **state)
{
    (void)state;
    static const struct {
        const char *batch, *days;
        double gpus;
    } asked[] = { { "60", "10", 60 }, { "100", "22", 20 }, { "12", "60", 12 } };
    for (size_t i = 0; i < COUNT(asked); i++) {
        memplan_report *r = computed(
            "llama-2-7b", SETUP("zero", "3", "global_batch", asked[i].batch,
                                "days", asked[i].days));
        assert_true(r->deadline.met);
        near(r->deadline.gpus, asked[i].gpus, 0);
        memplan_report_free(r);
    }
    /* where nothing says the batch too: there is one step for 20 ranks */
    memplan_report *r = computed(
        "llama-2-7b", SETUP("zero", "3", "seq_len", "2048", "tokens", "40960",
                            "days", "0.0016", "peak_flops", "1e12"));
    assert_true(r->deadline.gpus > 16);
    memplan_report_free(r);
}

/* What the text says is needed is what the numbers say. */
static void test_deadline_numbers(void **state)
{
    (void)state;
    memplan_report *r =
        computed("llama-2-7b", SETUP("zero", "3", "days", "10"));
    near(number(r, "gpus_needed"), number(r, "deadline_gpus"), 0);
    memplan_report_free(r);

    r = computed("llama-2-7b",
                 SETUP("zero", "3", "days", "0.01", "global_batch", "64"));
    assert_false(r->deadline.met);
    assert_true(isnan(r->compute.gpus_needed));
    assert_true(isnan(r->compute.gpus_in_nodes));
    memplan_report_free(r);

    /* by division too it is whole layouts */
    r = computed("llama-2-7b", SETUP("zero", "1", "days", "10", "mfu", "0.41",
                                     "tp", "4", "pp", "2"));
    assert_int_equal((int)number(r, "gpus_needed") % 8, 0);
    near(number(r, "gpus_needed"), (double)r->run.gpus, 0);
    memplan_report_free(r);

    /* and shares of a batch that is held: 18 GPUs cannot share 64 sequences */
    r = computed("llama-2-7b", SETUP("zero", "3", "days", "30", "mfu", "0.4",
                                     "global_batch", "64"));
    near(number(r, "gpus_needed"), 32, 0);
    near(number(r, "gpus"), 32, 0);
    assert_true(number(r, "days") < 30);
    near(number(r, "mfu"), 0.4, 1e-12);
    memplan_report_free(r);

    r = computed("llama-2-7b", SETUP("zero", "3", "days", "3", "mfu", "0.4",
                                     "global_batch", "64"));
    assert_true(isnan(r->compute.gpus_needed));
    near(number(r, "deadline_gpus"), 64, 0);
    memplan_report_free(r);
}

/* An estimate tells what compute tells, and is of its own GPUs. */
static void test_deadline_of_estimate(void **state)
{
    (void)state;
    memplan_setup *s = SETUP("zero", "3", "days", "10", "global_batch", "64");
    memplan_model *model = NULL;
    memplan_report *r = NULL;
    assert_int_equal(memplan_model_builtin(&model, "llama-2-7b", NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&r, model, s, NULL, NULL), MEMPLAN_OK);
    memplan_model_free(model);
    memplan_report *c = computed("llama-2-7b", s);
    assert_int_equal(r->run.gpus, 1);
    assert_int_equal(64 % (int)c->deadline.gpus, 0);
    near(r->deadline.gpus, c->deadline.gpus, 0);
    near(r->compute.gpus_needed, c->compute.gpus_needed, 0);
    memplan_report_free(c);
    memplan_report_free(r);
}

/* Links that are said replace the catalogue's: slower ones take longer. */
static void test_links(void **state)
{
    (void)state;
    static const char *const keys[] = { "intra_node_bandwidth",
                                        "inter_node_bandwidth" };
    static const char *const slow[] = { "30e9", "1e9" };
    static const char *const same[] = { "300e9", "25e9" };
    memplan_report *r =
        computed("llama-7b", SETUP("gpus", "64", "tp", "8", "zero", "1"));
    const double step = number(r, "step_time_s");
    assert_true(r->run.gpu.intra_node_bytes_s > 299e9);
    assert_true(r->run.gpu.inter_node_bytes_s > 24e9);
    memplan_report_free(r);
    for (size_t i = 0; i < COUNT(keys); i++) {
        r = computed("llama-7b", SETUP("gpus", "64", "tp", "8", "zero", "1",
                                       keys[i], slow[i]));
        assert_true(number(r, "step_time_s") > 1.05 * step);
        memplan_report_free(r);
        r = computed("llama-7b", SETUP("gpus", "64", "tp", "8", "zero", "1",
                                       keys[i], same[i]));
        near(number(r, "step_time_s"), step, 1e-9);
        memplan_report_free(r);
    }
}

/* Time that is lost is paid for once, in GPU-hours, and by them in days, cost and
 * energy. */
static void test_availability(void **state)
{
    (void)state;
    static const char *const all[] = { "gpu_hours", "days", "cost_usd",
                                       "energy_kwh" };
    memplan_report *r = computed("llama-7b", SETUP("gpus", "64", "zero", "3"));
    memplan_report *half = computed(
        "llama-7b", SETUP("gpus", "64", "zero", "3", "availability", "0.5"));
    for (size_t i = 0; i < COUNT(all); i++)
        near(number(half, all[i]), 2 * number(r, all[i]), 1e-12);
    near(number(half, "cost_usd"),
         number(half, "gpu_hours") * number(half, "price_usd_h"), 1e-12);
    near(number(half, "mfu"), number(r, "mfu"), 1e-12);
    near(number(r, "energy_kwh"), number(r, "gpu_hours") * 0.4 * 1.38 * 1.1,
         1e-9);
    memplan_report_free(half);
    memplan_report_free(r);
}

/* A module's TDP has the CPU in it, which the node's share would count again. */
static void test_energy_of_modules(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        double kw;
    } cases[] = { { "gh200-96gb", 0.9 * 1.1 },
                  { "gh200-144gb", 0.9 * 1.1 },
                  { "gb200", 1.2 * 1.38 * 1.1 },
                  { "gb300", 1.4 * 1.38 * 1.1 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        memplan_report *r =
            computed("llama-7b", SETUP("gpu", cases[i].gpu, "zero", "3"));
        near(number(r, "energy_kwh"), number(r, "gpu_hours") * cases[i].kw,
             1e-9);
        memplan_report_free(r);
    }
}

/* C = 6 N D: two of the three give the third. */
static void test_budget_and_tokens(void **state)
{
    (void)state;
    memplan_setup *s = SETUP("budget", "1e22", "tokens", "260B");
    memplan_report *r = NULL;
    assert_int_equal(memplan_compute(&r, NULL, s, NULL, NULL), MEMPLAN_OK);
    near(r->compute.params, 1e22 / (6 * 260e9), 1e-9);
    near(r->compute.tokens, 260e9, 1e-12);
    memplan_report_free(r);
    memplan_setup_free(s);
}

static void test_compute_needs_a_size(void **state)
{
    (void)state;
    memplan_error slot[2];
    memplan_errors errs = { slot, 2, 0 };
    memplan_setup *s = SETUP("days", "30");
    memplan_report *r = NULL;
    assert_int_equal(memplan_compute(&r, NULL, s, NULL, &errs), MEMPLAN_E_ARG);
    assert_null(r);
    assert_non_null(strstr(slot[0].message, "how large the model is"));
    assert_non_null(strstr(slot[0].hint, "params"));
    memplan_setup_free(s);
}

/* ---- sums ---- */

static const struct {
    const char *model;
    const char *pairs[12];
} layouts[] = {
    { "llama-7b", { "gpus", "64", "zero", "3" } },
    { "llama-7b", { "gpus", "64", "zero", "2", "grad_accum", "4" } },
    { "llama-7b", { "gpus", "8", "zero", "1", "recompute", "full" } },
    { "llama-7b", { "gpus", "8", "framework", "torchtitan" } },
    { "llama-7b", { "gpus", "8", "framework", "fsdp" } },
    { "llama-7b",
      { "gpus", "64", "tp", "2", "pp", "4", "global_batch", "64" } },
    { "gpt3-175b",
      { "gpus", "1024", "tp", "8", "pp", "8", "recompute", "selective" } },
    { "gpt2", { "gpus", "4", "framework", "hf", "micro_batch", "8" } },
    { "mixtral-8x7b", { "gpus", "64", "zero", "3" } },
    { "gemma-2-9b", { "gpus", "16", "zero", "3", "attention", "eager" } },
    { "megatron-22b", { "gpus", "8", "tp", "8", "implementation", "paper" } },
};

static memplan_report *layout(size_t i)
{
    return estimate(layouts[i].model, setup_of(layouts[i].pairs));
}

static void test_components_add_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        memplan_report *r = layout(i);
        for (uint64_t k = 0; k < r->memory.n_stages; k++) {
            const struct stage_result *s = &r->memory.stage[k];
            uint64_t sum = 0, terms = 0;
            for (unsigned c = 0; c < COMP_COUNT; c++)
                sum += s->component[c];
            for (unsigned t = 0; t < TERM_COUNT; t++)
                terms += s->peak.bytes[t];
            assert_int_equal(sum, s->peak.total);
            assert_int_equal(terms, s->peak.total);
            assert_true(s->rest.total <= s->peak.total);
            assert_true(s->peak.total <= r->memory.peak);
        }
        assert_int_equal(
            bytes(r, "memory.parameters") + bytes(r, "memory.gradients")
                + bytes(r, "memory.optimizer_states")
                + bytes(r, "memory.activations") + bytes(r, "memory.temporary"),
            bytes(r, "memory.peak_allocated"));
        memplan_report_free(r);
    }
}

/* What is explained of a report; its arena is the caller's to release. */
static struct explanation explained(struct arena *a, const memplan_report *r)
{
    arena_init(a, NULL);
    struct explanation x = { .arena = a };
    assert_true(report_explain(r, &x));
    return x;
}

/* The explanation's terms are the estimate's: the parts of "peak" add up. */
static void test_explanation_adds_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        memplan_report *r = layout(i);
        struct arena a;
        const struct explanation x = explained(&a, r);
        uint64_t total = 0, sums = 0, parts = 0;
        for (size_t k = 0; k < x.n; k++) {
            const struct explain_entry *e = &x.entry[k];
            if (strcmp(e->section, "peak") == 0)
                total = e->bytes;
            if (strncmp(e->section, "peak: ", 6) != 0)
                continue;
            if (e->depth == 0)
                sums += e->bytes;
            else
                parts += e->bytes;
        }
        assert_int_equal(sums, total);
        assert_int_equal(parts, total);
        assert_int_equal(total, r->memory.peak);
        arena_release(&a);
        memplan_report_free(r);
    }
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* What is left of each message is what the step has of them, and what they slow
 * with what messages inside blocks do is what it has of that. */
static void test_explained_messages_add_up(void **state)
{
    (void)state;
    size_t some = 0, slow = 0;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        memplan_report *r = layout(i);
        struct arena a;
        const struct explanation x = explained(&a, r);
        double left = 0, slowed = 0;
        for (size_t k = 0; k < x.n; k++) {
            const struct explain_entry *e = &x.entry[k];
            if (starts_with(e->name, "between replicas, what is left: "))
                left += e->value;
            if (starts_with(e->name, "between replicas, what is slowed: ")
                || ends_with(e->name, ": computing slowed by messages"))
                slowed += e->value;
        }
        some += left > 0;
        slow += slowed > 0;
        near(left + 1, r->time.part[TIME_DP] + 1, 1e-9);
        near(slowed + 1, r->time.part[TIME_SLOWED] + 1, 1e-9);
        arena_release(&a);
        memplan_report_free(r);
    }
    assert_true(some > 0);
    assert_true(slow > 2);
}

/* Parts of a step are sums over its blocks, each of which is told. */
static void test_explained_parts_add_up(void **state)
{
    (void)state;
    static const enum time_part parts[] = { TIME_PRODUCTS, TIME_ATTENTION,
                                            TIME_AGAIN, TIME_TP, TIME_CP };
    for (size_t i = 0; i < COUNT(layouts); i++) {
        memplan_report *r = layout(i);
        struct arena a;
        const struct explanation x = explained(&a, r);
        for (size_t k = 0; k < COUNT(parts); k++) {
            char end[64];
            double sum = 0;
            str_format(end, sizeof end, ": %s", time_part_label(parts[k]));
            for (size_t e = 0; e < x.n; e++)
                if (strncmp(x.entry[e].formula, "micro-batches * ", 16) == 0
                    && ends_with(x.entry[e].name, end))
                    sum += x.entry[e].value;
            near(sum + 1, r->time.part[parts[k]] + 1, 1e-9);
        }
        arena_release(&a);
        memplan_report_free(r);
    }
}

static void test_again_is_the_same(void **state)
{
    (void)state;
    memplan_model *model = NULL;
    memplan_setup *setup = SETUP("gpus", "64", "zero", "3");
    memplan_report *report = NULL;
    assert_int_equal(memplan_model_builtin(&model, "llama-7b", NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&report, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    const uint64_t peak = bytes(report, "memory.peak_allocated");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(memplan_estimate_again(report, model, setup, NULL),
                         MEMPLAN_OK);
        assert_int_equal(bytes(report, "memory.peak_allocated"), peak);
    }
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);
}

/* ---- in flight ---- */

static void test_one_f_one_b(void **state)
{
    (void)state;
    memplan_report *r =
        estimate("gpt3-13b", SETUP("gpus", "8", "pp", "8", "grad_accum", "16"));
    assert_int_equal(r->memory.n_stages, 8);
    for (uint64_t k = 0; k < 8; k++)
        assert_int_equal(r->memory.stage[k].in_flight, 8 - k);
    memplan_report_free(r);
    r = estimate("gpt3-13b", SETUP("gpus", "8", "pp", "8", "grad_accum", "3"));
    assert_int_equal(r->memory.stage[0].in_flight, 3);
    memplan_report_free(r);
}

/* ---- fp32 copies of 16-bit gradients ---- */

/* Megatron's optimizer has them between its step and the next step's first
 * forward, and so not at the loss: by as much as they raise the steady figure,
 * twice the buffer that fp32 main gradients would take more, the peak is less
 * than theirs. */
static void test_gradient_copies(void **state)
{
    (void)state;
    memplan_report *half =
        estimate("gpt2", SETUP("framework", "megatron", "precision",
                               "fp16-mixed", "grad_dtype", "fp16", "zero", "0",
                               "micro_batch", "16", "fast", "true"));
    memplan_report *whole =
        estimate("gpt2", SETUP("framework", "megatron", "precision",
                               "fp16-mixed", "grad_dtype", "fp32", "zero", "0",
                               "micro_batch", "16", "fast", "true"));
    const uint64_t more = bytes(half, "memory.steady_allocated")
                          - bytes(whole, "memory.steady_allocated");
    assert_true(more > 2 * UINT64_C(124000000));
    assert_int_equal(bytes(whole, "memory.peak_allocated")
                         - bytes(half, "memory.peak_allocated"),
                     more);
    memplan_report_free(half);
    memplan_report_free(whole);
}

/* ---- what would make it fit ---- */

static void test_changes(void **state)
{
    (void)state;
    memplan_report *r =
        estimate("llama-7b", SETUP("gpus", "8", "gpu", "a100-80gb"));
    assert_false(memplan_report_fits(r));
    struct changes changes;
    assert_true(report_changes(&changes, r));
    assert_true(changes.n > 0);
    bool fits = false;
    for (size_t i = 0; i < changes.n; i++) {
        const struct change *c = &changes.row[i];
        assert_true(c->device_total < r->memory.device_total);
        fits = fits || c->fits;
    }
    assert_true(fits);
    assert_int_equal(bytes(r, "changes[1].peak_allocated"),
                     changes.row[1].peak);
    memplan_report_free(r);
}

/* A pile names each option once, where Megatron has no ZeRO stage between two
 * that help. */
static void test_pile_of_changes(void **state)
{
    (void)state;
    memplan_report *r =
        estimate("mixtral-8x7b",
                 SETUP("gpus", "8", "gpu", "h100-80gb", "framework", "megatron",
                       "ep", "4", "zero", "0", "grad_accum", "4"));
    struct changes changes;
    assert_true(report_changes(&changes, r));
    assert_true(changes.n > 0);
    const char *pile = changes.row[changes.n - 1].text;
    const char *zero = strstr(pile, "--zero ");
    assert_non_null(zero);
    assert_memory_equal(zero, "--zero 3 ", 9);
    assert_null(strstr(zero + 1, "--zero "));
    memplan_report_free(r);
}

/* ---- memory runs out ---- */

struct failing {
    long left; /* allocations that still succeed */
    size_t alive;
};

static void *failing_resize(void *ctx, void *p, size_t old, size_t size)
{
    struct failing *f = ctx;
    if (size == 0) {
        f->alive -= old;
        free(p);
        return NULL;
    }
    if (f->left-- <= 0)
        return NULL;
    void *q = realloc(p, size);
    if (q != NULL)
        f->alive += size - old;
    return q;
}

static bool discard(void *ctx, const char *text, size_t len)
{
    (void)text;
    *(size_t *)ctx += len;
    return true;
}

static memplan_status everything(const memplan_allocator *a)
{
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    size_t written = 0;
    const memplan_style style = { MEMPLAN_FORMAT_JSON, false, 0 };
    memplan_status st = memplan_model_builtin(&model, "gpt2", a, NULL);
    if (st == MEMPLAN_OK)
        st = memplan_setup_new(&setup, a, NULL);
    if (st == MEMPLAN_OK)
        st = memplan_setup_set(setup, "gpus", "4", NULL);
    if (st == MEMPLAN_OK) /* does not fit: changes are looked for */
        st = memplan_setup_set(setup, "gpu_memory", "2GiB", NULL);
    if (st == MEMPLAN_OK)
        st = memplan_estimate(&report, model, setup, a, NULL);
    if (st == MEMPLAN_OK)
        st = memplan_report_write(report, MEMPLAN_VIEW_SUMMARY, &style, discard,
                                  &written, NULL);
    if (st == MEMPLAN_OK)
        st = memplan_report_write(report, MEMPLAN_VIEW_EXPLAIN, &style, discard,
                                  &written, NULL);
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return st;
}

static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    memplan_status st = MEMPLAN_E_NOMEM;
    long n = 0;
    for (; n < 1000 && st != MEMPLAN_OK; n++) {
        struct failing f = { n, 0 };
        const memplan_allocator a = { failing_resize, &f };
        st = everything(&a);
        assert_true(st == MEMPLAN_OK || st == MEMPLAN_E_NOMEM);
        assert_int_equal(f.alive, 0);
    }
    assert_int_equal(st, MEMPLAN_OK);
    assert_true(n > 3);
}

/* ---- experts ---- */

/* Of Mixtral 8x7B on 8 GPUs, an expert on each; extra may be NULL. */
static memplan_report *routed_as(const char *key, const char *value)
{
    return estimate("mixtral-8x7b",
                    SETUP("gpus", "8", "gpu", "b200", "framework", "megatron",
                          "ep", "8", "seq_len", "1024", "moe_imbalance", "1",
                          "moe_expert_capacity_factor", "16", key, value));
}

static void test_routing(void **state)
{
    (void)state;
    memplan_report *even = routed_as("ep", "8");
    memplan_report *uneven = routed_as("moe_imbalance", "2");
    memplan_report *capped =
        estimate("mixtral-8x7b",
                 SETUP("gpus", "8", "gpu", "b200", "framework", "megatron",
                       "ep", "8", "seq_len", "1024", "moe_imbalance", "4",
                       "moe_expert_capacity_factor", "2"));
    const uint64_t least = bytes(even, "memory.activations");
    /* an expert's input, both halves and the product, of h, 2 f and f; and a
       probability in fp32, of 2048 rows more in each of 32 layers */
    const uint64_t row = 2 * (4096 + 2 * 14336 + 14336);
    const uint64_t more = bytes(uneven, "memory.activations") - least;
    assert_true(more >= 32 * 2048 * row);
    assert_true(more <= 32 * 2048 * (row + row / 10));
    assert_int_equal(bytes(capped, "memory.activations"),
                     bytes(uneven, "memory.activations"));
    assert_int_equal(bytes(even, "memory.parameters"),
                     bytes(uneven, "memory.parameters"));
    assert_true(number(even, "compute.model_flops")
                    <= number(uneven, "compute.model_flops")
                && number(even, "compute.model_flops")
                       >= number(uneven, "compute.model_flops"));
    memplan_report_free(even);
    memplan_report_free(uneven);
    memplan_report_free(capped);
    /* padded, what is sent is as long as what is received */
    memplan_report *padded = routed_as("moe_pad_expert_input_to_capacity", "1");
    assert_true(bytes(padded, "memory.activations") > 8 * least);
    /* 2 experts of 3 h f each are chosen in 32 layers: 15 times as many rows
       of theirs are padding, forward and twice backward */
    const double tokens = number(padded, "compute.tokens");
    const double idle = number(padded, "compute.hardware_flops")
                        - number(padded, "compute.model_flops");
    const double expert = 6.0 * 32 * 2 * 3 * 4096 * 14336;
    assert_true(idle > 14.99 * expert * tokens
                && idle < 15.01 * expert * tokens);
    memplan_report_free(padded);
}

/* transformers' Llama 4 sends every token through all 16 experts, of which one
 * counts: a step costs what is computed, a model's FLOPs are those of one. */
static void test_experts_of_every_token(void **state)
{
    (void)state;
    memplan_report *r =
        estimate("llama-4-scout", SETUP("gpus", "64", "framework", "deepspeed",
                                        "zero", "3", "seq_len", "1024"));
    const double six_nd = number(r, "compute.flops_6nd");
    const double model = number(r, "compute.model_flops");
    const double hardware = number(r, "compute.hardware_flops");
    bool said = false;
    char buf[ASSUMPTION_TEXT];
    for (size_t i = 0; i < r->run.n_assumptions; i++)
        said = said
               || strstr(assumption_text(&r->run.assumption[i], buf),
                         "every token goes");
    assert_true(said);
    assert_true(model > 0.9 * six_nd && model < 1.1 * six_nd);
    /* 15 of 16 experts, 6.04B parameters each, beside 17.2B in use */
    assert_true(hardware - model > 0.99 * 6 * 15 * 6.04e9 / 17.2e9 * six_nd / 6
                && hardware - model
                       < 1.01 * 6 * 15 * 6.04e9 / 17.2e9 * six_nd / 6);
    memplan_report_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_of_every_token),
        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_zero_paper),
        cmocka_unit_test(test_zero_paper_degrees),
        cmocka_unit_test(test_compute),
        cmocka_unit_test(test_laws),
        cmocka_unit_test(test_law_inverse),
        cmocka_unit_test(test_kaplan_loss),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_over_training),
        cmocka_unit_test(test_repeated_data),
        cmocka_unit_test(test_repeated_optimum),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_deadline_in_a_layout),
        cmocka_unit_test(test_deadline_predicted),
        cmocka_unit_test(test_deadline_parts),
        cmocka_unit_test(test_deadline_numbers),
        cmocka_unit_test(test_deadline_of_estimate),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_availability),
        cmocka_unit_test(test_energy_of_modules),
        cmocka_unit_test(test_budget_and_tokens),
        cmocka_unit_test(test_compute_needs_a_size),
        cmocka_unit_test(test_components_add_up),
        cmocka_unit_test(test_explanation_adds_up),
        cmocka_unit_test(test_explained_messages_add_up),
        cmocka_unit_test(test_explained_parts_add_up),
        cmocka_unit_test(test_again_is_the_same),
        cmocka_unit_test(test_one_f_one_b),
        cmocka_unit_test(test_gradient_copies),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_pile_of_changes),
        cmocka_unit_test(test_every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
