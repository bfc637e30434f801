/*
 * A network of convolutions as a list of layers: 'layers'. Owns the keys that
 * a layer of each kind has, their defaults (PyTorch's modules) and what they
 * refer to. Refuses to know what a layer costs; conv_shapes.c infers shapes.
 */
#include "spec/import.h"

#include <inttypes.h>

#include "base/banned.h"

enum { SIZE_MAX_HERE = 65535 };

/* ---- which keys ---- */

static const struct {
    enum conv_kind kind;
    const char *keys;
} kind_keys[] = {
    { CL_CONV, "out kernel stride padding dilation groups bias" },
    { CL_BATCH_NORM, "" },
    { CL_RELU, "inplace" },
    { CL_MAX_POOL, "kernel stride padding dilation ceil_mode" },
    { CL_AVG_POOL, "kernel stride padding ceil_mode output" },
    { CL_LINEAR, "out bias" },
    { CL_FLATTEN, "" },
    { CL_DROPOUT, "p" },
    { CL_ADD, "from inplace" },
};
static const char common_keys[] = "type name input notes";

static bool has_word(const char *list, struct str word)
{
    struct str rest = str_of(list);
    while (rest.n > 0)
        if (str_eq(str_cut(rest, ' ', &rest), word))
            return true;
    return false;
}

static bool find_kind(struct str word, enum conv_kind *out)
{
    for (int k = 0; k < CONV_KINDS; k++)
        if (str_is(word, conv_kind_name((enum conv_kind)k))) {
            *out = (enum conv_kind)k;
            return true;
        }
    return false;
}

/* One layer as it is read: `number` counts from 1. */
struct reading {
    struct import *im;
    const struct spec *spec;
    const struct json *at;
    struct conv_layer *c;
    int32_t number;
    bool bad;
};

static memplan_error *wrong(struct reading *r, const struct json *at,
                            const char *what)
{
    r->bad = true;
    return import_error(r->im, at, MEMPLAN_E_SCHEMA,
                        "layer %" PRId32 "%s%s%s %s", r->number,
                        r->c->name[0] ? " ('" : "", r->c->name,
                        r->c->name[0] ? "')" : "", what);
}

static void check_layer_keys(struct reading *r)
{
    char what[120];
    const char *own = kind_keys[r->c->kind].keys;
    for (const struct json *v = r->at->child; v; v = v->next) {
        if (has_word(common_keys, v->key) || has_word(own, v->key)
            || (v->key.n > 2 && v->key.p[0] == 'x' && v->key.p[1] == '-'))
            continue;
        str_format(what, sizeof what, "has a key '%.40s' that a %s has not",
                   v->key.p, conv_kind_name(r->c->kind));
        diag_hint(wrong(r, v, what), "its keys: %s%s%s", common_keys,
                  own[0] ? " " : "", own);
    }
}

/* ---- values ---- */

static void read_count(struct reading *r, const char *key, uint64_t *out,
                       bool wanted)
{
    char what[80];
    const struct json *at = json_member(r->at, key);
    if (at) {
        r->bad = !import_count(r->im, at, 1, SIZE_MAX_HERE, out) || r->bad;
    } else if (wanted) {
        str_format(what, sizeof what, "has no '%s'", key);
        diag_hint(wrong(r, r->at, what), "add \"%s\": 64", key);
    }
}

/* A number for both sides, or [height, width]. */
static void read_sides(struct reading *r, const char *key, double least,
                       uint64_t out[2])
{
    const struct json *at = json_member(r->at, key);
    if (!at)
        return;
    if (at->kind == JSON_ARRAY && at->child && at->child->next
        && !at->child->next->next) {
        r->bad = !import_count(r->im, at->child, least, SIZE_MAX_HERE, &out[0])
                 || !import_count(r->im, at->child->next, least, SIZE_MAX_HERE,
                                  &out[1])
                 || r->bad;
    } else if (at->kind == JSON_ARRAY) {
        diag_hint(wrong(r, at, "has sides that are not two"),
                  "write a number, or [height, width]");
    } else if (import_count(r->im, at, least, SIZE_MAX_HERE, &out[0])) {
        out[1] = out[0];
    } else {
        r->bad = true;
    }
}

static void read_flag(struct reading *r, const char *key, bool *out)
{
    char what[80];
    const struct json *at = json_member(r->at, key);
    if (!at)
        return;
    if (at->kind == JSON_BOOL) {
        *out = at->truth;
        return;
    }
    str_format(what, sizeof what, "has a '%s' that is not true or false", key);
    wrong(r, at, what);
}

static void read_window(struct reading *r)
{
    struct window *w = &r->c->window;
    const bool pool = r->c->kind != CL_CONV;
    *w = (struct window){ { 0, 0 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, false };
    read_sides(r, "kernel", 1, w->kernel);
    if (pool) { /* windows of a pooling lie side by side */
        w->stride[0] = w->kernel[0];
        w->stride[1] = w->kernel[1];
    }
    read_sides(r, "stride", 1, w->stride);
    read_sides(r, "padding", 0, w->padding);
    read_sides(r, "dilation", 1, w->dilation);
    read_flag(r, "ceil_mode", &w->ceil);
    if (r->bad || r->c->pooled[0] > 0)
        return;
    if (w->kernel[0] == 0)
        diag_hint(wrong(r, r->at, "has no 'kernel'"), "add \"kernel\": 3%s",
                  r->c->kind == CL_AVG_POOL
                      ? ", or \"output\": 1 for one number a channel"
                      : "");
    else if (pool
             && (w->padding[0] > w->kernel[0] / 2
                 || w->padding[1] > w->kernel[1] / 2))
        diag_hint(wrong(r, r->at, "is padded by more than half its kernel"),
                  "PyTorch's poolings refuse that");
}

static void read_output(struct reading *r)
{
    const struct json *at = json_member(r->at, "output");
    read_sides(r, "output", 1, r->c->pooled);
    if (at && json_member(r->at, "kernel"))
        diag_hint(wrong(r, at, "has both 'output' and 'kernel'"),
                  "leave one out: 'output' is the adaptive pooling");
}

/* ---- references ---- */

/* An earlier layer by number or name, the input by 0. */
static bool find_layer(const struct reading *r, const struct json *at,
                       int32_t *out)
{
    if (at->kind == JSON_NUMBER && at->number >= 0
        && at->number < (double)r->number) {
        *out = (int32_t)at->number - 1;
        return (double)(*out + 1) >= at->number;
    }
    for (int32_t i = 0; at->kind == JSON_STRING && i + 1 < r->number; i++)
        if (str_is(at->text, r->spec->conv[i].name)
            && r->spec->conv[i].name[0] != '\0') {
            *out = i;
            return true;
        }
    return false;
}

static void read_reference(struct reading *r, const char *key, int32_t *out)
{
    char what[80];
    const struct json *at = json_member(r->at, key);
    if (at && find_layer(r, at, out))
        return;
    if (!at)
        str_format(what, sizeof what, "has no '%s'", key);
    else
        str_format(what, sizeof what, "has a '%s' that is no earlier layer",
                   key);
    diag_hint(wrong(r, at ? at : r->at, what),
              "write the name of a layer before it, or its number, of which "
              "the first is 1");
}

static bool is_taken(const struct reading *r)
{
    for (int32_t i = 0; i + 1 < r->number; i++)
        if (str_eq(str_of(r->spec->conv[i].name), str_of(r->c->name)))
            return r->c->name[0] != '\0';
    return false;
}

static void read_name(struct reading *r, struct arena *a)
{
    const struct json *at = json_member(r->at, "name");
    r->c->name = "";
    if (!at)
        return;
    if (at->kind != JSON_STRING) {
        wrong(r, at, "has a 'name' that is no string");
        return;
    }
    const char *name = arena_copy(a, at->text.p, at->text.n);
    r->c->name = name ? name : "";
    if (is_taken(r))
        wrong(r, at, "has the name of an earlier layer");
}

/* ---- a layer ---- */

static void read_rate(struct reading *r)
{
    const struct json *at = json_member(r->at, "p");
    r->c->p = 0.5;
    if (!at)
        return;
    if (at->kind == JSON_NUMBER && at->number >= 0 && at->number < 1)
        r->c->p = at->number;
    else
        diag_hint(wrong(r, at, "has a 'p' that is no probability"),
                  "write a number from 0 up to 1");
}

static void read_kind(struct reading *r)
{
    struct conv_layer *c = r->c;
    switch (c->kind) {
    case CL_CONV:
        read_count(r, "out", &c->out, true);
        read_count(r, "groups", &c->groups, false);
        read_flag(r, "bias", &c->bias);
        read_window(r);
        return;
    case CL_AVG_POOL:
        read_output(r);
        read_window(r);
        return;
    case CL_MAX_POOL: read_window(r); return;
    case CL_LINEAR:
        read_count(r, "out", &c->out, true);
        read_flag(r, "bias", &c->bias);
        return;
    case CL_RELU: read_flag(r, "inplace", &c->in_place); return;
    case CL_DROPOUT: read_rate(r); return;
    case CL_ADD:
        read_reference(r, "from", &c->from);
        read_flag(r, "inplace", &c->in_place);
        return;
    case CL_BATCH_NORM:
    case CL_FLATTEN:
    case CONV_KINDS: return;
    }
}

static void unknown_kind(struct reading *r, const struct json *type)
{
    char list[160] = "";
    for (int k = 0; k < CONV_KINDS; k++)
        str_append(list, sizeof list, "%s%s", k ? ", " : "",
                   conv_kind_name((enum conv_kind)k));
    diag_hint(wrong(r, type ? type : r->at,
                    type ? "has a 'type' that is not known" : "has no 'type'"),
              "known: %s", list);
}

static void read_layer(struct reading *r, struct arena *a)
{
    r->c->name = "";
    if (r->at->kind != JSON_OBJECT) {
        diag_hint(wrong(r, r->at, "is no object"),
                  "write {\"type\": \"conv2d\", \"out\": 64, \"kernel\": 3}");
        return;
    }
    read_name(r, a);
    const struct json *type = json_member(r->at, "type");
    if (!type || type->kind != JSON_STRING
        || !find_kind(type->text, &r->c->kind)) {
        unknown_kind(r, type);
        return;
    }
    check_layer_keys(r);
    r->c->bias = true;
    r->c->groups = 1;
    r->c->input = r->number - 2;
    if (json_member(r->at, "input"))
        read_reference(r, "input", &r->c->input);
    read_kind(r);
}

/* ---- the list ---- */

static const struct json *layer_at(const struct json *list, uint64_t i)
{
    const struct json *at = list->child;
    while (at && i-- > 0)
        at = at->next;
    return at;
}

static bool is_trained(const struct conv_layer *c)
{
    return c->kind == CL_CONV || c->kind == CL_LINEAR
           || c->kind == CL_BATCH_NORM;
}

/* n_conv where nothing is trained. */
static uint64_t first_trained(const struct spec *s)
{
    uint64_t i = 0;
    while (i < s->n_conv && !is_trained(&s->conv[i]))
        i++;
    return i;
}

/* What stands before the first layer that is trained, the input too, is for
 * that layer alone. */
static void check_early(struct import *im, const struct spec *s,
                        const struct json *list)
{
    const int64_t first = (int64_t)first_trained(s);
    for (uint64_t i = (uint64_t)first + 1; i < s->n_conv; i++) {
        const struct conv_layer *c = &s->conv[i];
        const bool adds = c->kind == CL_ADD && c->from < first;
        if (c->input >= first && !adds)
            continue;
        diag_hint(import_error(im, layer_at(list, i), MEMPLAN_E_UNSUPPORTED,
                               "layer %" PRIu64 " takes what comes before the "
                               "first layer that is trained, which is not "
                               "modelled",
                               i + 1),
                  "let it take layer %" PRId64 " or a later one", first + 1);
    }
}

static void check_list(struct import *im, struct spec *out,
                       const struct json *list)
{
    struct conv_fault fault;
    if (first_trained(out) == out->n_conv)
        diag_hint(import_error(im, list, MEMPLAN_E_SCHEMA,
                               "no layer of 'layers' has anything to train"),
                  "it takes a conv2d or a linear");
    else if (!spec_conv_shapes(out, &fault))
        diag_hint(import_error(im, layer_at(list, fault.layer),
                               MEMPLAN_E_CONFLICT, "%s", fault.message),
                  "%s", fault.hint);
    else
        check_early(im, out, list);
}

static size_t length_of(struct import *im, const struct json *list)
{
    size_t n = 0;
    for (const struct json *at = list->child; at; at = at->next)
        n++;
    if (list->kind == JSON_ARRAY && n > 0 && n <= CONV_LAYERS_MAX)
        return n;
    diag_hint(import_error(im, list, MEMPLAN_E_SCHEMA,
                           "'layers' must be a list of 1 to %d layers",
                           CONV_LAYERS_MAX),
              "such as [{\"type\": \"flatten\"}, {\"type\": \"linear\", "
              "\"out\": 10}]");
    return 0;
}

void import_conv_list(struct import *im, struct spec *out, struct arena *a)
{
    const struct json *list = json_member(im->object, "layers");
    const size_t n = length_of(im, list);
    bool bad = im->d->status != MEMPLAN_OK;
    out->layers = 1;
    if (n == 0)
        return;
    out->conv = ARENA_NEW(a, struct conv_layer, n);
    if (out->conv == NULL) {
        diag_nomem(im->d);
        return;
    }
    const struct json *at = list->child;
    for (size_t i = 0; i < n; i++, at = at->next) {
        struct reading r = { .im = im,
                             .spec = out,
                             .at = at,
                             .c = &out->conv[i],
                             .number = (int32_t)i + 1 };
        *r.c = (struct conv_layer){ .name = "" };
        read_layer(&r, a);
        bad = bad || r.bad;
    }
    out->n_conv = n;
    if (!bad)
        check_list(im, out, list);
}
