/*
 * The blocks of Nemotron-H, each of one part: a mixer of tokens, an MLP, or
 * experts. A file lists them, or writes a letter for each; how many there are is
 * how deep the model is, whatever num_hidden_layers says
 * (NemotronHConfig.__post_init__). Refuses to know what a block computes.
 */
#include "spec/import.h"

#include <inttypes.h>

#include "base/banned.h"

enum { BLOCKS_MAX = 10000 }; /* as of layers elsewhere (field.def) */

enum block { BLOCK_MAMBA, BLOCK_MOE, BLOCK_ATTENTION, BLOCK_MLP, BLOCK_COUNT };

static const struct {
    const char *word, *old; /* before transformers 5; "" the same */
    char letter;
} blocks[BLOCK_COUNT] = {
    [BLOCK_MAMBA] = { "linear_attention", "mamba", 'M' },
    [BLOCK_MOE] = { "moe", "", 'E' },
    [BLOCK_ATTENTION] = { "full_attention", "attention", '*' },
    [BLOCK_MLP] = { "mlp", "", '-' },
};

/* Where the file says its blocks: a list, else letters; NULL: the class's own,
 * one of each. */
static const struct json *blocks_at(const struct import *im)
{
    static const char *const keys[] = { "layers_block_type", "layer_types",
                                        "hybrid_override_pattern" };
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const struct json *at = json_member(im->object, keys[i]);
        if (at && at->kind != JSON_NULL)
            return at;
    }
    return NULL;
}

static enum block of_word(struct import *im, const struct json *one)
{
    for (int k = 0; k < BLOCK_COUNT && one->kind == JSON_STRING; k++)
        if (str_is(one->text, blocks[k].word)
            || (blocks[k].old[0] != '\0' && str_is(one->text, blocks[k].old)))
            return (enum block)k;
    memplan_error *e =
        one->kind == JSON_STRING
            ? import_error(im, one, MEMPLAN_E_UNKNOWN,
                           "a '%s' model has no block of type '%.40s'",
                           family_name(im->family), one->text.p)
            : import_error(im, one, MEMPLAN_E_SCHEMA,
                           "a block's type must be a string, not %s",
                           json_kind_name(one->kind));
    diag_hint(e, "use one of linear_attention, moe, full_attention, mlp");
    return BLOCK_COUNT;
}

static enum block of_letter(struct import *im, const struct json *at,
                            char letter)
{
    for (int k = 0; k < BLOCK_COUNT; k++)
        if (blocks[k].letter == letter)
            return (enum block)k;
    memplan_error *e = import_error(im, at, MEMPLAN_E_UNKNOWN,
                                    "'%s' has a letter of no block", at->key.p);
    diag_hint(e, "M is Mamba-2, * attention, - an MLP, E experts");
    return BLOCK_COUNT;
}

/* The i-th block of what blocks_at() found; `one` is its entry of a list. */
static enum block block_of(struct import *im, const struct json *at,
                           const struct json *one, size_t i)
{
    if (at == NULL)
        return (enum block)i;
    return at->kind == JSON_STRING ? of_letter(im, at, at->text.p[i])
                                   : of_word(im, one);
}

static uint64_t count(const struct json *at)
{
    uint64_t n = 0;
    if (at == NULL)
        return BLOCK_COUNT;
    if (at->kind == JSON_STRING)
        return at->text.n;
    for (const struct json *one = at->child; one; one = one->next)
        n++;
    return n;
}

void import_count_blocks(struct import *im)
{
    const struct json *at = blocks_at(im);
    struct value *layers = &im->v[F_LAYERS];
    if (at && at->kind != JSON_ARRAY && at->kind != JSON_STRING) {
        import_error(im, at, MEMPLAN_E_SCHEMA,
                     "'%s' must be a list, or letters, not %s", at->key.p,
                     json_kind_name(at->kind));
        layers->bad = true;
        return;
    }
    layers->n = count(at);
    if (layers->n >= 1 && layers->n <= BLOCKS_MAX)
        return;
    import_error(im, at, MEMPLAN_E_RANGE,
                 "'%s' has %" PRIu64 " blocks, out of range", at->key.p,
                 layers->n);
    layers->bad = true;
}

static void lacks_experts(struct import *im)
{
    memplan_error *e =
        import_error(im, import_at(im, F_EXPERTS), MEMPLAN_E_CONFLICT,
                     "'%s' is 0, but a block of experts is listed",
                     import_key(im, F_EXPERTS));
    diag_hint(e, "write how many there are, or a list without 'moe' (E)");
}

void import_blocks(struct import *im, struct spec *out, struct arena *a)
{
    const struct json *at = blocks_at(im);
    const struct json *one = at && at->kind == JSON_ARRAY ? at->child : NULL;
    uint8_t *mixes = ARENA_NEW(a, uint8_t, out->layers);
    uint8_t *attends = ARENA_NEW(a, uint8_t, out->layers);
    uint8_t *sparse = ARENA_NEW(a, uint8_t, out->layers);
    uint8_t *slides = ARENA_NEW(a, uint8_t, out->layers);
    bool experts = false;
    if (!mixes || !attends || !sparse || !slides) {
        (void)diag_nomem(im->d);
        return;
    }
    for (uint64_t i = 0; i < out->layers; i++) {
        const enum block block = block_of(im, at, one, i);
        if (block == BLOCK_COUNT)
            return;
        mixes[i] = block == BLOCK_MAMBA || block == BLOCK_ATTENTION;
        attends[i] = block == BLOCK_ATTENTION;
        sparse[i] = block == BLOCK_MOE;
        slides[i] = 0;
        experts = experts || block == BLOCK_MOE;
        one = one ? one->next : NULL;
    }
    out->mixes.listed = mixes;
    out->attends.listed = attends;
    out->sparse.listed = sparse;
    out->slides.listed = slides;
    if (!experts) /* whatever the file says of them */
        out->experts = out->experts_per_token = out->expert_ffn =
            out->shared_ffn = 0;
    else if (out->experts == 0)
        lacks_experts(im);
}
