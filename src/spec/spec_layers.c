/*
 * Which layers of a model have what: lists of a file that name layers one by
 * one, and steps whose rest follows from the step. Owns the patterns of a
 * spec; refuses to know what a layer computes.
 */
#include "spec/import.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* What a list says. */
enum list {
    LIST_KINDS,  /* a word a layer */
    LIST_ROTARY, /* a number a layer: 0 where it does not rotate */
    LIST_MLPS,   /* a word a layer: dense, sparse */
    LIST_SPARSE, /* the numbers of layers with experts */
    LIST_DENSE,  /* the numbers of those without */
    LIST_ATTEND, /* the numbers of those with attention */
    LIST_BLOCKS, /* what each is, and how many there are: spec_blocks.c */
    LIST_FULL,   /* the numbers of those without a window */
    LIST_DEEP    /* the numbers of those with a merger of their own */
};

/* Lists that a class reads; of null the rule holds. Rows of one family are read
 * in their order: kinds may follow from what rotates. */
static const struct layer_list {
    enum family family;
    const char *key;
    enum list list;
} lists[] = {
    { FAM_DECODER, "layer_types", LIST_KINDS },
    { FAM_GPT_OSS, "layer_types", LIST_KINDS },
    { FAM_GEMMA2, "layer_types", LIST_KINDS },
    { FAM_QWEN2, "layer_types", LIST_KINDS },
    { FAM_QWEN3, "layer_types", LIST_KINDS },
    { FAM_QWEN2_MOE, "mlp_only_layers", LIST_DENSE },
    { FAM_QWEN3_MOE, "mlp_only_layers", LIST_DENSE },
    { FAM_QWEN2_VL, "layer_types", LIST_KINDS },
    { FAM_QWEN2_5_VL, "layer_types", LIST_KINDS },
    { FAM_QWEN3_VL_MOE, "mlp_only_layers", LIST_DENSE },
    { FAM_QWEN3_NEXT, "layer_types", LIST_KINDS },
    { FAM_QWEN3_NEXT, "mlp_only_layers", LIST_DENSE },
    { FAM_QWEN3_5, "layer_types", LIST_KINDS },
    { FAM_QWEN3_5_MOE, "layer_types", LIST_KINDS },
    { FAM_DEEPSEEK_V32, "mlp_layer_types", LIST_MLPS },
    { FAM_GLM4_MOE_LITE, "mlp_layer_types", LIST_MLPS },
    { FAM_CWM, "layer_types", LIST_KINDS },
    { FAM_EXAONE_MOE, "layer_types", LIST_KINDS },
    { FAM_EXAONE_MOE, "mlp_layer_types", LIST_MLPS },
    { FAM_VAULTGEMMA, "layer_types", LIST_KINDS },
    { FAM_GRANITE_HYB, "layer_types", LIST_KINDS },
    { FAM_GRANITE_HYB, "layers_block_type", LIST_KINDS }, /* set last */
    { FAM_BAMBA, "attn_layer_indices", LIST_ATTEND },
    { FAM_LFM2, "full_attn_idxs", LIST_ATTEND },
    { FAM_LFM2, "layer_types", LIST_KINDS },
    { FAM_LFM2_MOE, "layer_types", LIST_KINDS },
    { FAM_NEMOTRON_H, "layers_block_type", LIST_BLOCKS },
    { FAM_NEMOTRON_H, "layer_types", LIST_BLOCKS },
    { FAM_NEMOTRON_H, "hybrid_override_pattern", LIST_BLOCKS },
    { FAM_LLAMA4, "moe_layers", LIST_SPARSE },
    { FAM_LLAMA4, "no_rope_layers", LIST_ROTARY },
    { FAM_LLAMA4, "layer_types", LIST_KINDS },
    { FAM_SMOLLM3, "no_rope_layers", LIST_ROTARY },
    { FAM_SMOLLM3, "layer_types", LIST_KINDS },
    { FAM_MINISTRAL, "layer_types", LIST_KINDS },
    { FAM_DOTS1, "layer_types", LIST_KINDS },
    { FAM_OLMO3, "layer_types", LIST_KINDS },
    { FAM_EXAONE4, "layer_types", LIST_KINDS },
    { FAM_COHERE2, "layer_types", LIST_KINDS },
    { FAM_GEMMA3, "layer_types", LIST_KINDS },
    { FAM_PHI3SMALL, "layer_types", LIST_KINDS },
    { FAM_QWEN2_5_VISION, "fullatt_block_indexes", LIST_FULL },
    { FAM_QWEN3_VISION, "deepstack_visual_indexes", LIST_DEEP },
};

/* Where there is no list: all layers but the last of each so many. */
static const struct step {
    enum family family;
    const char *key; /* that gives the step; "" where the class fixes it */
    uint64_t absent;
    enum list list; /* in place of this */
    bool never;     /* null, or 0: no layer is the last of so many */
    bool first;     /* of each so many the first in place of the last */
} steps[] = {
    { FAM_LLAMA4, "no_rope_layer_interval", 4, LIST_ROTARY, false, false },
    { FAM_SMOLLM3, "no_rope_layer_interval", 4, LIST_ROTARY, false, false },
    { FAM_PHI3SMALL, "dense_attention_every_n_layers", 2, LIST_KINDS, true,
      false },
    { FAM_OLMO3, "", 4, LIST_KINDS, false, false },
    { FAM_EXAONE4, "sliding_window_pattern", 4, LIST_KINDS, false, false },
    { FAM_EXAONE_MOE, "sliding_window_pattern", 4, LIST_KINDS, false, false },
    { FAM_COHERE2, "sliding_window_pattern", 4, LIST_KINDS, false, false },
    { FAM_GEMMA3, "sliding_window_pattern", 6, LIST_KINDS, false, false },
    { FAM_QWEN2_5_VISION, "", 8, LIST_FULL, false, false },
    { FAM_CWM, "", 4, LIST_KINDS, false, true },
};

/* A layer's word, and what it means. */
static const struct word {
    const char *text;
    enum kind {
        KIND_FULL,
        KIND_SLIDES,
        KIND_CHUNKED,
        KIND_LINEAR,
        KIND_CONV
    } kind;
    bool old; /* of files before transformers 5 (remap_legacy_layer_types) */
} words[] = {
    { "full_attention", KIND_FULL, false },
    { "sliding_attention", KIND_SLIDES, false },
    { "chunked_attention", KIND_CHUNKED, false },
    { "linear_attention", KIND_LINEAR, false },
    { "conv", KIND_CONV, false },
    { "attention", KIND_FULL, true },
    { "mamba", KIND_LINEAR, true },
};

const char *import_layer_list(enum family family, size_t *next)
{
    while (*next < COUNT_OF(lists)) {
        const struct layer_list *l = &lists[(*next)++];
        if (l->family == family)
            return l->key;
    }
    while (*next - COUNT_OF(lists) < COUNT_OF(steps)) {
        const struct step *at = &steps[(*next)++ - COUNT_OF(lists)];
        if (at->family == family && at->key[0] != '\0')
            return at->key;
    }
    return NULL;
}

static bool reads_list(enum family family, const char *key)
{
    const char *list;
    for (size_t next = 0; (list = import_layer_list(family, &next));)
        if (strcmp(list, key) == 0)
            return true;
    return false;
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
        "'%s' has %" PRIu64 " entr%s, but there %s %" PRIu64 " layer%s",
        at->key.p, n, n == 1 ? "y" : "ies", layers == 1 ? "is" : "are", layers,
        unit_s((double)layers));
    diag_hint(e, "write one entry a layer, or leave the key out");
}

/* More than there are layers may be read layer by layer. */
static bool has_an_entry_each(struct import *im, const struct json *at,
                              uint64_t layers, bool more)
{
    uint64_t n = 0;
    for (const struct json *one = at->child; one; one = one->next)
        n++;
    const bool good = n == layers || (more && n > layers);
    if (!good)
        wrong_length(im, at, n, layers);
    return good;
}

/* Which layers the family's class has: it makes masks for these alone. */
static bool has_word(const struct import *im, const struct word *word)
{
    const bool chunks = im->family == FAM_LLAMA4;
    const bool conv = im->v[F_MIXER].n == MIX_CONV;
    const bool linear = im->v[F_MIXER].n != MIX_ATTENTION;
    switch (word->kind) {
    case KIND_FULL: return true;
    case KIND_SLIDES: return !chunks && !linear;
    case KIND_CHUNKED: return chunks;
    case KIND_LINEAR: return linear && !conv;
    case KIND_CONV: return conv;
    }
    return false;
}

static const struct word *word_of(struct import *im, const struct json *one)
{
    char list[120] = "";
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        if (!has_word(im, &words[i]))
            continue;
        if (one->kind == JSON_STRING && str_is(one->text, words[i].text))
            return &words[i];
        if (!words[i].old)
            str_append_item(list, sizeof(list), words[i].text);
    }
    memplan_error *e =
        one->kind == JSON_STRING
            ? import_error(im, one, MEMPLAN_E_UNKNOWN,
                           "a '%s' model has no layer of type '%.40s'",
                           family_name(im->family), one->text.p)
            : import_error(im, one, MEMPLAN_E_SCHEMA,
                           "a layer's type must be a string, not %s",
                           json_kind_name(one->kind));
    diag_hint(e, "use one of %s", list);
    return NULL;
}

/* Classes have a window of their own; the generic decoder has not. */
static bool has_window(struct import *im, const struct json *one)
{
    if (im->family != FAM_DECODER || im->v[F_SLIDING_WINDOW].n > 0
        || im->v[F_SLIDING_WINDOW].bad)
        return true;
    memplan_error *e = import_error(im, one, MEMPLAN_E_CONFLICT,
                                    "a layer slides, but there is no "
                                    "'sliding_window'");
    diag_hint(e, "add \"sliding_window\": ...");
    return false;
}

static void read_kinds(struct import *im, const struct json *at,
                       struct spec *out, struct arena *a)
{
    uint8_t *attends = bytes_of(im, a, out->layers, 1);
    uint8_t *slides = bytes_of(im, a, out->layers, 0);
    uint64_t i = 0;
    if (!attends || !slides || !has_an_entry_each(im, at, out->layers, false))
        return;
    for (const struct json *one = at->child; one; one = one->next, i++) {
        const struct word *word = word_of(im, one);
        if (!word || (word->kind == KIND_SLIDES && !has_window(im, one)))
            return;
        attends[i] = word->kind != KIND_LINEAR && word->kind != KIND_CONV;
        slides[i] = word->kind == KIND_SLIDES || word->kind == KIND_CHUNKED;
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
    const bool more = im->family == FAM_SMOLLM3; /* no kinds follow from them */
    if (!rotates || !has_an_entry_each(im, at, out->layers, more))
        return;
    for (const struct json *one = at->child; one && i < out->layers;
         one = one->next) {
        uint64_t n = 0;
        if (!import_count(im, one, 0, 1, &n))
            return;
        rotates[i++] = (uint8_t)n;
    }
    out->rotates.listed = rotates;
}

static bool is_absent(const struct json *at)
{
    return !at || at->kind == JSON_NULL;
}

static void read_mlps(struct import *im, const struct json *at,
                      struct spec *out, struct arena *a)
{
    uint8_t *sparse = bytes_of(im, a, out->layers, 0);
    uint64_t i = 0;
    const bool more = im->family == FAM_GLM4_MOE_LITE
                      && is_absent(json_member(im->object, "layer_types"));
    if (!sparse || !has_an_entry_each(im, at, out->layers, more))
        return;
    for (const struct json *one = at->child; one && i < out->layers;
         one = one->next) {
        const bool word = one->kind == JSON_STRING;
        if (!word
            || !(str_is(one->text, "dense") || str_is(one->text, "sparse"))) {
            memplan_error *e = import_error(im, one, MEMPLAN_E_UNKNOWN,
                                            "an MLP of no known type");
            diag_hint(e, "known: dense, sparse");
            return;
        }
        sparse[i++] = str_is(one->text, "sparse");
    }
    out->sparse.listed = sparse;
}

/* Beyond any number of layers. */
#define STEP_MAX 1e6

/* Layers by number; the others have what the rule gives, or nothing. */
static void read_numbers(struct import *im, const struct json *at,
                         struct spec *out, struct arena *a)
{
    const struct layer_list *l = lists;
    while (l->family != im->family || !str_is(at->key, l->key))
        l++;
    const bool sparse = l->list == LIST_SPARSE, full = l->list == LIST_FULL;
    const bool attend = l->list == LIST_ATTEND;
    uint8_t *bytes = bytes_of(im, a, out->layers, full);
    if (!bytes)
        return;
    for (uint64_t i = 0; i < out->layers && l->list == LIST_DENSE; i++)
        bytes[i] = pattern_has(&out->sparse, i);
    for (const struct json *one = at->child; one; one = one->next) {
        uint64_t n = 0;
        /* Qwen's class looks its layers up in the list: more is no error */
        if (!import_count(im, one, 0,
                          full || attend ? STEP_MAX : (double)out->layers - 1,
                          &n))
            return;
        if (n < out->layers)
            bytes[n] = sparse || attend;
    }
    if (full)
        out->slides.listed = bytes;
    else if (attend)
        out->attends.listed = bytes;
    else
        out->sparse.listed = bytes;
}

static void add_merger(struct spec *out, uint8_t *bytes, uint64_t layer)
{
    out->deep_mergers++;
    if (layer >= out->layers || bytes[layer])
        return;
    bytes[layer] = 1;
    out->deep_layers++;
}

/* Qwen3VLVisionModel makes a merger an entry, and looks its layers up in the
 * list: of layers that there are not, and of a second entry, nothing uses
 * it. */
static void read_mergers(struct import *im, const struct json *at,
                         struct spec *out, struct arena *a)
{
    static const uint64_t usual[] = { 8, 16, 24 };
    uint8_t *bytes = bytes_of(im, a, out->layers, 0);
    const bool said = at && at->kind != JSON_NULL;
    out->deep_mergers = out->deep_layers = 0;
    out->deep.listed = bytes;
    if (!bytes)
        return;
    for (size_t i = 0; !said && i < COUNT_OF(usual); i++)
        add_merger(out, bytes, usual[i]);
    for (const struct json *one = said ? at->child : NULL; one;
         one = one->next) {
        uint64_t n = 0;
        if (!import_count(im, one, 0, STEP_MAX, &n))
            return;
        add_merger(out, bytes, n);
    }
}

/* The rule in place of a list; NULL: there is none. */
static const struct step *rule_of(const struct layer_list *l)
{
    for (size_t i = 0; i < COUNT_OF(steps); i++)
        if (steps[i].family == l->family && steps[i].list == l->list)
            return &steps[i];
    return NULL;
}

/* The class divides by it. */
static void lacks_step(struct import *im, const struct json *at)
{
    memplan_error *e = import_error(im, at, MEMPLAN_E_CONFLICT,
                                    "'%s' is null, and nothing else says "
                                    "which layers",
                                    at->key.p);
    diag_hint(e, "write a number of layers, or leave it out");
}

/* Its step; 0: it is wrong. */
static uint64_t step_of(struct import *im, const struct step *one,
                        const struct spec *out)
{
    const struct json *at = json_member(im->object, one->key);
    uint64_t n = 0;
    if (at && at->kind == JSON_NULL && one->never)
        return out->layers + 1;
    if (!at)
        return one->absent;
    if (at->kind == JSON_NULL)
        lacks_step(im, at);
    if (at->kind == JSON_NULL
        || !import_count(im, at, one->never ? 0 : 1, STEP_MAX, &n))
        return 0;
    return n > 0 ? n : out->layers + 1;
}

static void take_step(struct import *im, const struct layer_list *l,
                      struct spec *out, struct arena *a)
{
    const struct step *rule = rule_of(l);
    const uint64_t every = rule ? step_of(im, rule, out) : 0;
    uint8_t *bytes = every > 0 ? bytes_of(im, a, out->layers, 1) : NULL;
    if (!bytes)
        return;
    for (uint64_t i = rule->first ? 0 : every - 1; i < out->layers; i += every)
        bytes[i] = 0;
    if (l->list == LIST_ROTARY)
        out->rotates.listed = bytes;
    else
        out->slides.listed = bytes;
}

static void read_list(struct import *im, const struct layer_list *l,
                      struct spec *out, struct arena *a)
{
    const struct json *at = json_member(im->object, l->key);
    const bool empty = at && at->kind == JSON_ARRAY && at->child == NULL;
    if (import_lacks(im, l->key))
        return;
    if (l->list == LIST_DEEP
        && (!at || at->kind == JSON_NULL || at->kind == JSON_ARRAY)) {
        read_mergers(im, at, out, a);
        return;
    }
    /* Llama 4 takes none for the rule (Llama4TextConfig) */
    if (is_absent(at)
        || (empty && l->list == LIST_ROTARY && im->family == FAM_LLAMA4)
        || (empty && l->list == LIST_DENSE)) {
        take_step(im, l, out, a);
        return;
    }
    if (at->kind != JSON_ARRAY) {
        import_error(im, at, MEMPLAN_E_SCHEMA, "'%s' must be a list, not %s",
                     l->key, json_kind_name(at->kind));
        return;
    }
    switch (l->list) {
    case LIST_KINDS: read_kinds(im, at, out, a); break;
    case LIST_ROTARY: read_rotary(im, at, out, a); break;
    case LIST_MLPS: read_mlps(im, at, out, a); break;
    case LIST_DEEP:
    case LIST_BLOCKS: break;
    case LIST_SPARSE:
    case LIST_FULL:
    case LIST_ATTEND:
    case LIST_DENSE: read_numbers(im, at, out, a); break;
    }
}

/* Every entry of a list that no layer is made from is a word. */
static void check_words(struct import *im, const struct json *at)
{
    const struct json *one = at->kind == JSON_ARRAY ? at->child : at;
    while (one && one != at && one->kind == JSON_STRING)
        one = one->next;
    if (one)
        diag_hint(import_error(im, one, MEMPLAN_E_SCHEMA,
                               "'%s' must be a list of words, not %s",
                               at->key.p,
                               one == at ? json_kind_name(at->kind) : "this"),
                  "write one word a layer, or leave the key out");
}

/* Every configuration is asked whether these fit, read by its class or not
 * (configuration_utils.py, validate_layer_type, transformers 5): the second one
 * where there is the first, which a class that reads it makes itself. */
static void check_unread(struct import *im, const struct spec *out)
{
    static const char *const keys[] = { "layer_types", "mlp_layer_types" };
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const struct json *at = json_member(im->object, keys[i]);
        const bool reads = reads_list(im->family, keys[i]);
        if (is_absent(at) && !reads)
            return;
        if (is_absent(at) || reads)
            continue;
        check_words(im, at);
        if (at->kind == JSON_ARRAY)
            has_an_entry_each(im, at, out->layers, false);
    }
}

/* Lfm2MoeConfig has no rule in its place. */
static void lacks_kinds(struct import *im)
{
    if (im->d->status != MEMPLAN_OK) /* it may be there, and wrong */
        return;
    memplan_error *e = import_error(im, im->object, MEMPLAN_E_SCHEMA,
                                    "'layer_types' is missing");
    diag_hint(e, "write conv or full_attention for each layer");
}

/* ---- rules ---- */

/* The last of every so many: (i + 1) % every == 0. */
static void last_of_each(struct pattern *p)
{
    p->at = p->every > 0 ? p->every - 1 : 0;
}

/* Ernie 4.5: none after moe_layer_end_index, of which -1 is the last. */
static void end_experts(struct import *im, struct spec *out, struct arena *a)
{
    const struct json *at = json_member(im->object, "moe_layer_end_index");
    uint64_t last = 0;
    if (!at || at->kind == JSON_NULL
        || (at->kind == JSON_NUMBER && at->number <= -1 && at->number >= -1))
        return;
    if (!import_count(im, at, 0, (double)out->layers - 1, &last))
        return;
    uint8_t *bytes = bytes_of(im, a, out->layers, 0);
    for (uint64_t i = 0; bytes && i <= last; i++)
        bytes[i] = pattern_has(&out->sparse, i);
    out->sparse.listed = bytes;
}

static bool is_exaone(enum family family)
{
    return family == FAM_EXAONE4 || family == FAM_EXAONE_MOE;
}

/* SmolLM 3: windows, if at all, where nothing rotates (SmolLM3Config); Llama 4:
 * chunks where something does (Llama4TextConfig). Cohere
 * 2 and EXAONE 4 the other way round, but that EXAONE without a window rotates
 * everywhere (Cohere2Attention, Exaone4Attention). */
static void tie_windows_to_rotation(struct spec *out, struct arena *a,
                                    struct import *im)
{
    const bool exaone = is_exaone(im->family);
    const bool chunks = im->family == FAM_LLAMA4;
    if ((chunks || im->family == FAM_SMOLLM3) && out->slides.listed == NULL) {
        uint8_t *slides = bytes_of(im, a, out->layers, 0);
        for (uint64_t i = 0; slides && i < out->layers; i++)
            slides[i] = pattern_has(&out->rotates, i) == chunks;
        out->slides.listed = slides;
    }
    if (im->family == FAM_COHERE2 || (exaone && out->sliding_window > 0))
        out->rotates.listed = out->slides.listed;
}

/* A class makes masks for layers that slide by a list, window or not; EXAONE's
 * divides by 0 where it has neither (Exaone4Config). */
static bool slides_nowhere(struct import *im, const struct spec *out)
{
    const struct json *window = json_member(im->object, "sliding_window");
    const struct json *list = json_member(im->object, "layer_types");
    const bool null = window && window->kind == JSON_NULL;
    uint64_t i = 0;
    while (i < out->layers && !pattern_has(&out->slides, i))
        i++;
    if (i == out->layers || !reads_list(im->family, "layer_types")
        || (is_absent(list) && !(null && is_exaone(im->family))))
        return true;
    memplan_error *e = import_error(
        im, null ? window : list, MEMPLAN_E_CONFLICT,
        "layer %" PRIu64 " slides, but there is no 'sliding_window'", i);
    diag_hint(e, "write a number of tokens (and use_sliding_window where there "
                 "is that), or layer_types without sliding_attention");
    return false;
}

static void count_sliding(struct import *im, struct spec *out)
{
    if (out->sliding_window == 0 && slides_nowhere(im, out))
        out->slides = (struct pattern){ 0 };
    out->sliding_layers = 0;
    for (uint64_t i = 0; out->sliding_window > 0 && i < out->layers; i++)
        out->sliding_layers += pattern_has(&out->slides, i);
}

/* On unless the file says false, or 0: it has been a number. */
static bool tunes_temperature(const struct import *im)
{
    const struct json *at = json_member(im->object, "attn_temperature_tuning");
    if (im->family != FAM_LLAMA4 || !at)
        return im->family == FAM_LLAMA4;
    if (at->kind == JSON_NUMBER)
        return at->number > 0 || at->number < 0;
    return at->kind == JSON_BOOL && at->truth;
}

/* Granite 4.0's dense models, all of whose layers attend, are of attention:
 * kernels and adapters of a state are nowhere. */
static void drop_mixer(const struct import *im, struct spec *out)
{
    uint64_t i = 0;
    if (im->family != FAM_GRANITE_HYB && im->family != FAM_BAMBA)
        return;
    while (i < out->layers && pattern_has(&out->attends, i))
        i++;
    if (i < out->layers)
        return;
    out->mixer = MIX_ATTENTION;
    out->attends = (struct pattern){ 0 };
}

void import_layers(struct import *im, struct spec *out, struct arena *a)
{
    if (im->v[F_LAYERS].bad || im->d->status != MEMPLAN_OK)
        return;
    if (im->family == FAM_QWEN2_MOE || im->family == FAM_QWEN3_MOE
        || im->family == FAM_QWEN3_NEXT || im->family == FAM_ERNIE_MOE
        || im->family == FAM_LLAMA4 || im->family == FAM_QWEN3_VL_MOE)
        last_of_each(&out->sparse);
    if (im->v[F_MIXER].n == MIX_DELTA)
        last_of_each(&out->attends);
    if (im->family == FAM_ERNIE_MOE)
        end_experts(im, out, a);
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        if (lists[i].family == im->family && lists[i].list != LIST_BLOCKS)
            read_list(im, &lists[i], out, a);
    }
    if (im->family == FAM_LFM2_MOE && out->attends.listed == NULL)
        lacks_kinds(im);
    if (im->family == FAM_NEMOTRON_H)
        import_blocks(im, out, a);
    check_unread(im, out);
    if (im->d->status != MEMPLAN_OK)
        return;
    tie_windows_to_rotation(out, a, im);
    out->tunes_temperature = tunes_temperature(im);
    count_sliding(im, out);
    drop_mixer(im, out);
}
