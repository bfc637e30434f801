/*
 * A training on each GPU of the catalogue: each row is what compute says of
 * that GPU alone, the cheapest that fits first; lists of prices.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "data/gpu.h"
#include "plan/offers.h"

static memplan_setup *setup_of(const char *json)
{
    memplan_setup *s = NULL;
    assert_int_equal(memplan_setup_new(&s, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_parse(s, json, strlen(json), NULL),
                     MEMPLAN_OK);
    return s;
}

static memplan_model *model_of(const char *name)
{
    memplan_model *m = NULL;
    assert_int_equal(memplan_model_builtin(&m, name, NULL, NULL), MEMPLAN_OK);
    return m;
}

#define RUN "\"zero\": 3, \"tokens\": 1e12, \"days\": 30"

static void test_rows(void **state)
{
    (void)state;
    memplan_setup *s = setup_of("{" RUN "}");
    memplan_model *m = model_of("llama-7b");
    memplan_offers *x = NULL;
    assert_int_equal(memplan_offers_new(&x, m, s, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(x->n, gpu_count());
    size_t possible = 0;
    bool all_fit = true;
    for (size_t i = 0; i < x->n; i++) {
        const struct offer *o = &x->row[i];
        char json[160];
        snprintf(json, sizeof json, "{" RUN ", \"gpu\": \"%s\"}", o->gpu);
        memplan_setup *one = setup_of(json);
        memplan_report *r = NULL;
        const bool ok = memplan_compute(&r, m, one, NULL, NULL) == MEMPLAN_OK;
        assert_int_equal(ok, o->possible);
        if (ok) {
            double hours = 0, gpus = 0;
            assert_int_equal(memplan_report_number(&hours, r, "gpu_hours"),
                             MEMPLAN_OK);
            assert_int_equal(memplan_report_number(&gpus, r, "gpus"),
                             MEMPLAN_OK);
            assert_true(hours <= o->gpu_hours && hours >= o->gpu_hours);
            assert_true(gpus <= o->gpus && gpus >= o->gpus);
            assert_true(o->late || o->days <= 30.0001);
            assert_true(all_fit || !o->fits || o->late);
            all_fit = all_fit && o->fits && !o->late;
            possible++;
        }
        memplan_report_free(r);
        memplan_setup_free(one);
    }
    assert_true(possible > 20);
    memplan_offers_free(x);
    memplan_model_free(m);
    memplan_setup_free(s);
}

/* Of a number that is given: in time, then late, then what does not fit. */
static void test_late_rows_that_fit(void **state)
{
    (void)state;
    memplan_setup *s = setup_of("{\"days\": 30, \"gpus\": 8}");
    memplan_model *m = model_of("llama-7b");
    memplan_offers *x = NULL;
    assert_int_equal(memplan_offers_new(&x, m, s, NULL, NULL), MEMPLAN_OK);
    int last = 0;
    bool seen[3] = { false, false, false };
    for (size_t i = 0; i < x->n && x->row[i].possible; i++) {
        const struct offer *o = &x->row[i];
        const int rank = !o->fits ? 2 : o->late ? 1 : 0;
        assert_true(rank >= last);
        last = rank;
        seen[rank] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    memplan_offers_free(x);
    memplan_model_free(m);
    memplan_setup_free(s);
}

static void test_prices(void **state)
{
    (void)state;
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    static const char good[] = "{\"h100\": 0, \"a100-80gb\": 1.25, \"notes\": "
                               "\"ours\"}";
    static const char bad[] = "{\"h1000-80gb\": 1, \"a100-80gb\": -1}";
    memplan_setup *s = setup_of("{\"params\": 13e9, \"gpus\": 64}");
    assert_true(gpu_count() <= GPU_PRICES_MAX);
    assert_int_equal(memplan_setup_prices(s, good, strlen(good), &errs),
                     MEMPLAN_OK);
    memplan_offers *x = NULL;
    assert_int_equal(memplan_offers_new(&x, NULL, s, NULL, &errs), MEMPLAN_OK);
    assert_string_equal(x->row[0].gpu, "h100-80gb");
    assert_true(x->row[0].cost_usd <= 0);
    for (size_t i = 0; i < x->n; i++)
        if (strcmp(x->row[i].gpu, "a100-80gb") == 0)
            assert_true(x->row[i].price_usd_h > 1.249
                        && x->row[i].price_usd_h < 1.251);
    memplan_offers_free(x);
    assert_int_not_equal(memplan_setup_prices(s, bad, strlen(bad), &errs),
                         MEMPLAN_OK);
    assert_int_equal(errs.count, 2);
    assert_non_null(strstr(slot[0].hint, "h100-80gb"));
    assert_int_equal(memplan_setup_prices(s, "[]", 2, &errs), MEMPLAN_E_SCHEMA);
    memplan_setup_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_late_rows_that_fit),
        cmocka_unit_test(test_prices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
