/*
 * Which layers of a model have what: lists of a file that name layers one by
 * one, and steps whose rest follows from the step. Owns the patterns of a
 * spec; refuses to know what a layer computes.
 */
#include "spec/import.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* What a list says. */
enum list {
    LIST_KINDS,  /* a word a layer */
    LIST_ROTARY, /* a number a layer: 0 where it does not rotate */
    LIST_SPARSE, /* the numbers of layers with experts */
    LIST_DENSE   /* the numbers of those without */
};

/* Lists that a class reads; of an empty one and of null the rule holds. */
static const struct layer_list {
    enum family family;
    const char *key;
    enum list list;
} lists[] = {
    { FAM_GPT_OSS, "layer_types", LIST_KINDS },
    { FAM_GEMMA2, "layer_types", LIST_KINDS },
    { FAM_QWEN2, "layer_types", LIST_KINDS },
    { FAM_QWEN3, "layer_types", LIST_KINDS },
    { FAM_QWEN2_MOE, "mlp_only_layers", LIST_DENSE },
    { FAM_QWEN3_MOE, "mlp_only_layers", LIST_DENSE },
    { FAM_QWEN3_NEXT, "layer_types", LIST_KINDS },
    { FAM_QWEN3_NEXT, "mlp_only_layers", LIST_DENSE },
};

/* A layer's word, and what it means. */
static const struct word {
    const char *text;
    bool attends, slides;
} words[] = {
    { "full_attention", true, false },
    { "sliding_attention", true, true },
    { "chunked_attention", true, true },
    { "linear_attention", false, false },
};

const char *import_layer_list(enum family family, size_t *next)
{
    while (*next < COUNT_OF(lists)) {
        const struct layer_list *l = &lists[(*next)++];
        if (l->family == family)
            return l->key;
    }
    return NULL;
}

/* ---- one byte a layer ---- */

static uint8_t *bytes_of(struct import *im, struct arena *a, uint64_t n,
                         uint8_t value)
{
    uint8_t *bytes = ARENA_NEW(a, uint8_t, n);
    if (bytes == NULL)
        (void)diag_nomem(im->d);
    else
        memset(bytes, value, n);
    return bytes;
}

static void wrong_length(struct import *im, const struct json *at, uint64_t n,
                         uint64_t layers)
{
    memplan_error *e = import_error(
        im, at, MEMPLAN_E_CONFLICT,
        "'%s' has %" PRIu64 " entries, but there are %" PRIu64 " layers",
        at->key.p, n, layers);
    diag_hint(e, "write one entry a layer, or leave the key out");
}

static bool has_an_entry_each(struct import *im, const struct json *at,
                              uint64_t layers)
{
    uint64_t n = 0;
    for (const struct json *one = at->child; one; one = one->next)
        n++;
    if (n != layers)
        wrong_length(im, at, n, layers);
    return n == layers;
}

static const struct word *word_of(struct import *im, const struct json *one)
{
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        if (one->kind == JSON_STRING && str_is(one->text, words[i].text))
            return &words[i];
    }
    memplan_error *e =
        import_error(im, one, MEMPLAN_E_UNKNOWN, "a layer of no known type");
    diag_hint(e, "known: full_attention, sliding_attention, "
                 "chunked_attention, linear_attention");
    return NULL;
}

static void read_kinds(struct import *im, const struct json *at,
                       struct spec *out, struct arena *a)
{
    uint8_t *attends = bytes_of(im, a, out->layers, 1);
    uint8_t *slides = bytes_of(im, a, out->layers, 0);
    uint64_t i = 0;
    if (!attends || !slides || !has_an_entry_each(im, at, out->layers))
        return;
    for (const struct json *one = at->child; one; one = one->next, i++) {
        const struct word *word = word_of(im, one);
        if (!word)
            return;
        attends[i] = word->attends;
        slides[i] = word->slides;
    }
    out->slides.listed = slides;
    if (out->mixer != MIX_ATTENTION)
        out->attends.listed = attends;
}

static void read_rotary(struct import *im, const struct json *at,
                        struct spec *out, struct arena *a)
{
    uint8_t *rotates = bytes_of(im, a, out->layers, 1);
    uint64_t i = 0;
    if (!rotates || !has_an_entry_each(im, at, out->layers))
        return;
    for (const struct json *one = at->child; one; one = one->next) {
        uint64_t n = 0;
        if (!import_count(im, one, 0, 1, &n))
            return;
        rotates[i++] = (uint8_t)n;
    }
    out->rotates.listed = rotates;
}

/* Layers by number; the others have what the rule gives, or nothing. */
static void read_numbers(struct import *im, const struct json *at,
                         struct spec *out, struct arena *a)
{
    const struct layer_list *l = lists;
    while (l->family != im->family || !str_is(at->key, l->key))
        l++;
    const bool sparse = l->list == LIST_SPARSE;
    uint8_t *bytes = bytes_of(im, a, out->layers, 0);
    if (!bytes)
        return;
    for (uint64_t i = 0; i < out->layers && !sparse; i++)
        bytes[i] = pattern_has(&out->sparse, i);
    for (const struct json *one = at->child; one; one = one->next) {
        uint64_t n = 0;
        if (!import_count(im, one, 0, (double)out->layers - 1, &n))
            return;
        bytes[n] = sparse;
    }
    out->sparse.listed = bytes;
}

static void read_list(struct import *im, const struct layer_list *l,
                      struct spec *out, struct arena *a)
{
    const struct json *at = json_member(im->object, l->key);
    if (!at || at->kind == JSON_NULL
        || (at->kind == JSON_ARRAY && at->child == NULL))
        return;
    if (at->kind != JSON_ARRAY) {
        import_error(im, at, MEMPLAN_E_SCHEMA, "'%s' must be a list, not %s",
                     l->key, json_kind_name(at->kind));
        return;
    }
    switch (l->list) {
    case LIST_KINDS: read_kinds(im, at, out, a); break;
    case LIST_ROTARY: read_rotary(im, at, out, a); break;
    case LIST_SPARSE:
    case LIST_DENSE: read_numbers(im, at, out, a); break;
    }
}

/* ---- rules ---- */

/* The last of every so many: (i + 1) % every == 0. */
static void last_of_each(struct pattern *p)
{
    p->at = p->every > 0 ? p->every - 1 : 0;
}

void import_layers(struct import *im, struct spec *out, struct arena *a)
{
    if (im->v[F_LAYERS].bad || im->d->status != MEMPLAN_OK)
        return;
    if (im->family == FAM_QWEN2_MOE || im->family == FAM_QWEN3_MOE
        || im->family == FAM_QWEN3_NEXT)
        last_of_each(&out->sparse);
    if (im->family == FAM_QWEN3_NEXT)
        last_of_each(&out->attends);
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        if (lists[i].family == im->family)
            read_list(im, &lists[i], out, a);
    }
    if (out->sliding_window == 0)
        out->slides = (struct pattern){ 0 };
}
