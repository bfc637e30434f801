#include "trials.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A name of the catalogue, or a text. */
static memplan_status load(memplan_model **out, const char *model,
                           const char *part)
{
    if (model[0] != '{')
        return memplan_model_builtin(out, model, NULL, NULL);
    const memplan_status st =
        memplan_model_parse(out, model, strlen(model), "inline", NULL, NULL);
    return part == NULL ? st : memplan_model_select(*out, part, NULL);
}

memplan_report *choices_estimate(const char *model, const char *part,
                                 const struct choice *c, size_t n)
{
    memplan_model *m = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    assert_int_equal(load(&m, model, part), MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    for (size_t i = 0; i < n; i++)
        if (c[i].value != NULL)
            assert_int_equal(
                memplan_setup_set(setup, c[i].key, c[i].value, NULL),
                MEMPLAN_OK);
    const memplan_status st = memplan_estimate(&report, m, setup, NULL, NULL);
    if (st != MEMPLAN_OK)
        assert_true(st == MEMPLAN_E_CONFLICT || st == MEMPLAN_E_UNSUPPORTED);
    assert_true((st == MEMPLAN_OK) == (report != NULL));
    memplan_setup_free(setup);
    memplan_model_free(m);
    return report;
}

void choices_describe(const struct choice *c, size_t n, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < n && used < size; i++)
        if (c[i].value != NULL)
            used += (size_t)snprintf(buf + used, size - used, " --%s %s",
                                     c[i].key, c[i].value);
}
