/* Runs of recordings that have a config.json and a setup in memplan's keys. */
#ifndef MEMPLAN_TESTS_RECORDED_RUN_H
#define MEMPLAN_TESTS_RECORDED_RUN_H

#include <stdio.h>

#include "memplan/memplan.h"
#include "json/json.h"

enum { VALUE_MAX = 64 };

static const struct json *at(const struct json *o, const char *key)
{
    const struct json *m = json_member(o, key);
    if (m == NULL)
        fail_msg("no '%s'", key);
    return m;
}

static void value_text(const struct json *v, char *buf, size_t size)
{
    if (v->kind == JSON_STRING)
        snprintf(buf, size, "%s", v->text.p);
    else if (v->kind == JSON_BOOL)
        snprintf(buf, size, "%s", v->truth ? "true" : "false");
    else
        snprintf(buf, size, "%.9g", v->number);
}

/* Of a run of the recording that `text` has: its config under its setup. */
static memplan_report *estimate_recorded(const struct json *run,
                                         const char *text, size_t len)
{
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    const struct json *config = at(run, "config");
    const size_t n = json_value_length(text, len, config->offset);
    if (memplan_model_parse(&model, text + config->offset, n, NULL, NULL, &errs)
        != MEMPLAN_OK)
        fail_msg("model: %s", slot[0].message);
    const struct json *part = json_member(run, "part"); /* of a model's file */
    if (part != NULL
        && memplan_model_select(model, part->text.p, &errs) != MEMPLAN_OK)
        fail_msg("part: %s", slot[0].message);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    for (const struct json *k = at(run, "setup")->child; k; k = k->next) {
        char value[VALUE_MAX];
        value_text(k, value, sizeof value);
        if (memplan_setup_set(setup, k->key.p, value, &errs) != MEMPLAN_OK)
            fail_msg("setup: %s", slot[0].message);
    }
    if (memplan_estimate(&report, model, setup, NULL, &errs) != MEMPLAN_OK)
        fail_msg("estimate: %s", slot[0].message);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return report;
}

#endif
