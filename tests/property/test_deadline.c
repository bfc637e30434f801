/*
 * A deadline's answer is the fewest GPUs of all that are possible, by looking
 * at each, those on which the setup fits before others, and whole nodes before
 * parts of them; and where a rank keeps its work more GPUs never take longer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

enum { TRIALS = 100, GPUS_LOOKED = 512 };

static uint64_t state_of_random = 77;

static uint64_t pick(uint64_t low, uint64_t high)
{
    state_of_random ^= state_of_random << 13;
    state_of_random ^= state_of_random >> 7;
    state_of_random ^= state_of_random << 17;
    return low + state_of_random % (high - low + 1);
}

struct random_setup {
    const char *model;
    char text[160]; /* JSON but for its end */
    uint64_t unit;
};

static void make(struct random_setup *s, bool held)
{
    static const char *const models[] = { "llama-7b", "gpt2-medium",
                                          "mistral-7b-v0.1", "llama-13b" };
    static const char *const gpus[] = { "a100-80gb", "h100-80gb", "a10",
                                        "gb200" };
    const unsigned tp = 1u << pick(0, 2), pp = 1u << pick(0, 1);
    char batch[48] = "";
    s->model = models[pick(0, 3)];
    s->unit = (uint64_t)tp * pp;
    if (held) {
        const uint64_t size = pick(0, 1) == 0 ? pick(1, 12) * 16 : pick(3, 60);
        snprintf(batch, sizeof batch, ", \"global_batch\": %u", (unsigned)size);
    }
    snprintf(s->text, sizeof s->text,
             "{\"framework\": \"megatron\", \"tp\": %u, \"pp\": %u, \"gpu\": "
             "\"%s\"%s",
             tp, pp, gpus[pick(0, 3)], batch);
}

/* Null where it is impossible. */
static memplan_report *computed(const struct random_setup *s, const char *key,
                                double value)
{
    char json[256];
    const int n =
        snprintf(json, sizeof json, "%s, \"%s\": %.9g}", s->text, key, value);
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *r = NULL;
    assert_int_equal(memplan_model_builtin(&model, s->model, NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_parse(setup, json, (size_t)n, NULL),
                     MEMPLAN_OK);
    if (memplan_compute(&r, model, setup, NULL, NULL) != MEMPLAN_OK)
        r = NULL;
    memplan_setup_free(setup);
    memplan_model_free(model);
    return r;
}

static double number(const memplan_report *r, const char *path)
{
    double x = 0;
    assert_int_equal(memplan_report_number(&x, r, path), MEMPLAN_OK);
    return x;
}

struct text {
    char at[1 << 15];
    size_t n;
};

static bool append(void *ctx, const char *bytes, size_t n)
{
    struct text *t = ctx;
    if (n >= sizeof t->at - t->n)
        return false;
    memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = '\0';
    return true;
}

/* Whether its JSON has these words. */
static bool says(const memplan_report *r, const char *words)
{
    static struct text t;
    const memplan_style style = { .format = MEMPLAN_FORMAT_JSON };
    t.n = 0;
    assert_int_equal(
        memplan_report_write(r, MEMPLAN_VIEW_SUMMARY, &style, append, &t, NULL),
        MEMPLAN_OK);
    return strstr(t.at, words) != NULL;
}

/* < 0: impossible. */
static double days_on(const struct random_setup *s, uint64_t gpus)
{
    memplan_report *r = computed(s, "gpus", (double)gpus);
    const double days = r == NULL ? -1 : number(r, "days");
    memplan_report_free(r);
    return days;
}

static bool fits_on(const struct random_setup *s, uint64_t gpus)
{
    memplan_report *r = computed(s, "gpus", (double)gpus);
    const bool fits = says(r, "\"fits\": true");
    memplan_report_free(r);
    return fits;
}

static bool in_whole_nodes(uint64_t gpus)
{
    return gpus <= 8 || gpus % 8 == 0;
}

/* Whether a number that is enough is a better answer than another that is. */
static bool comes_before(uint64_t a, uint64_t b)
{
    return in_whole_nodes(a) == in_whole_nodes(b) ? a < b : in_whole_nodes(a);
}

static void test_fewest(void **state)
{
    (void)state;
    unsigned met = 0, not_met = 0, parts = 0, large = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        struct random_setup s;
        make(&s, true);
        const double one = days_on(&s, s.unit);
        assert_true(one > 0);
        const double asked = one / (double)pick(1, 40);
        memplan_report *r = computed(&s, "days", asked);
        assert_non_null(r);
        const uint64_t most = (uint64_t)number(r, "deadline_gpus");
        const bool enough = number(r, "deadline_gpus_days") <= asked * 1.001;
        const bool too_large = says(r, "\"deadline_too_large\": true");
        large += too_large;
        met += enough;
        not_met += !enough;
        parts += enough && !in_whole_nodes(most);
        assert_true(most % s.unit == 0);
        for (uint64_t g = s.unit; g <= GPUS_LOOKED; g += s.unit) {
            if (enough && !too_large && !comes_before(g, most))
                continue;
            const double days = days_on(&s, g);
            const bool better =
                days > 0 && days <= asked * 0.999
                && (!enough || (too_large && comes_before(g, most))
                    || fits_on(&s, g));
            if (better)
                fail_msg("%s: %d GPUs are enough, not %d", s.text, (int)g,
                         (int)most);
        }
        memplan_report_free(r);
    }
    if (met <= 10 || not_met <= 10 || parts <= 2 || large <= 3)
        fail_msg("%u met, %u not, %u in parts of nodes, %u too large", met,
                 not_met, parts, large);
}

static void test_more_is_never_slower(void **state)
{
    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        struct random_setup s;
        make(&s, false);
        double before = 0;
        for (uint64_t g = s.unit; g <= 4096; g *= 2) {
            const double days = days_on(&s, g);
            assert_true(days > 0);
            if (before > 0 && days > before * 1.0001)
                fail_msg("%s: %g days on %d GPUs, %g on half", s.text, days,
                         (int)g, before);
            before = days;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fewest),
        cmocka_unit_test(test_more_is_never_slower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
