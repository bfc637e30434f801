/* What the tests of estimates share: one of a model, or of the catalogue's by
 * name, from pairs of setup keys and values. */
#ifndef MEMPLAN_TESTS_ESTIMATE_H
#define MEMPLAN_TESTS_ESTIMATE_H

#include "memplan/memplan.h"

/* Frees the model. `pairs` ends with NULL. */
static inline memplan_report *estimate_model(memplan_model *model,
                                             const char *const *pairs)
{
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    for (; *pairs != NULL; pairs += 2)
        assert_int_equal(memplan_setup_set(setup, pairs[0], pairs[1], NULL),
                         MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&report, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return report;
}

static inline memplan_report *estimate(const char *name,
                                       const char *const *pairs)
{
    memplan_model *model = NULL;
    assert_int_equal(memplan_model_builtin(&model, name, NULL, NULL),
                     MEMPLAN_OK);
    return estimate_model(model, pairs);
}

#endif
