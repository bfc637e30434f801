/*
 * A list of prices: {"a100-80gb": 1.10, ...}, in US dollars per GPU-hour. Owns
 * its reading; whose price counts is resolve_training.c's.
 */
#include "spec/setup.h"

#include "data/gpu.h"
#include "json/json.h"

#include <string.h>

#include "base/banned.h"

static const double PRICE_MOST = 1e6; /* of setup.def */

static void place(memplan_error *e, const struct json *v, struct str text)
{
    str_format(e->key, sizeof e->key, "%.*s", (int)v->key.n, v->key.p);
    json_locate(e, text.p, text.n, v);
}

static void bad_name(struct diag *d, const struct json *v, struct str text)
{
    memplan_error *e =
        diag_add(d, MEMPLAN_E_UNKNOWN, "unknown GPU '%.*s' in a list of prices",
                 (int)v->key.n, v->key.p);
    const struct gpu *near = gpu_nearest(v->key.p, v->key.n);
    if (near != NULL)
        diag_hint(e, "did you mean '%s'?", near->name);
    else
        diag_hint(e, "'memplan gpus' lists them all");
    place(e, v, text);
}

static void read_price(struct setup *s, const struct json *v, struct str text,
                       struct diag *d)
{
    if (str_is(v->key, "source") || str_is(v->key, "notes")
        || (v->key.n > 1 && memcmp(v->key.p, "x-", 2) == 0))
        return;
    const struct gpu *gpu = gpu_find(v->key.p, v->key.n);
    if (gpu == NULL) {
        bad_name(d, v, text);
        return;
    }
    const size_t i = (size_t)(gpu - gpu_at(0));
    if (v->kind != JSON_NUMBER || v->number < 0 || v->number > PRICE_MOST
        || i >= GPU_PRICES_MAX) {
        memplan_error *e =
            diag_add(d, MEMPLAN_E_ARG,
                     "the price of '%s' is US dollars per GPU-hour, 0 to 1e6, "
                     "not %s",
                     gpu->name,
                     v->kind == JSON_NUMBER ? "that" : json_kind_name(v->kind));
        diag_hint(e, "write {\"%s\": 1.10}", gpu->name);
        place(e, v, text);
        return;
    }
    s->listed_price[i] = v->number;
    s->listed[i] = true;
}

memplan_status setup_parse_prices(struct setup *s, const struct json *root,
                                  const char *text, size_t len, struct diag *d)
{
    const struct str whole = { text, len };
    if (root->kind != JSON_OBJECT) {
        memplan_error *e = diag_add(d, MEMPLAN_E_SCHEMA,
                                    "a list of prices is an object, not %s",
                                    json_kind_name(root->kind));
        diag_hint(e, "write {\"a100-80gb\": 1.10, \"h100-80gb\": 2.20}");
        json_locate(e, text, len, root);
        return d->status;
    }
    for (const struct json *v = root->child; v != NULL; v = v->next)
        read_price(s, v, whole, d);
    return d->status;
}
