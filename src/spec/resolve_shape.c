/*
 * Holds what a launch file says of its model against MODEL, which is what is
 * estimated: who estimates another model than he runs is told so, number by
 * number. Changes nothing.
 */
#include "spec/resolve.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

const char *shape_word_name(enum shape_word w)
{
    static const char *const names[] = {
#define SHAPE_TEXT(id, text) text,
        SHAPE_MAP(SHAPE_TEXT)
#undef SHAPE_TEXT
    };
    return names[w];
}

/* What MODEL has of it; false where the word means nothing in such a model. */
static bool of_model(const struct spec *s, enum shape_word w, uint64_t *n)
{
    const bool latent = s->kv_rank > 0, sparse = s->experts > 0;
    const bool dense = !sparse || (s->expert_ffn > 0 && s->ffn > 0);
    switch (w) {
    case SHAPE_LAYERS: *n = s->layers; return true;
    case SHAPE_HIDDEN: *n = s->hidden; return true;
    case SHAPE_HEADS: *n = s->heads; return true;
    case SHAPE_KV_HEADS: *n = s->kv_heads; return !latent;
    case SHAPE_HEAD_DIM: *n = s->head_dim; return !latent;
    case SHAPE_FFN: *n = s->ffn; return dense && s->ffn != s->expert_ffn;
    case SHAPE_VOCAB: *n = s->vocab; return true;
    case SHAPE_EXPERTS: *n = s->experts; return true;
    case SHAPE_TOP_K: *n = s->experts_per_token; return sparse;
    case SHAPE_EXPERT_FFN:
        *n = s->expert_ffn > 0 ? s->expert_ffn : s->ffn;
        return sparse;
    case SHAPE_SHARED_FFN: *n = s->shared_ffn; return sparse;
    case SHAPE_Q_RANK: *n = s->q_rank; return latent;
    case SHAPE_KV_RANK: *n = s->kv_rank; return true;
    case SHAPE_GATED: *n = s->gated_mlp; return true;
    case SHAPE_UNTIED: *n = !s->tied; return true;
    case SHAPE_NORM: *n = s->norm == NORM_RMS; return true;
    case SHAPE_POSITION: *n = s->position; return true;
    case SHAPE_COUNT: break;
    }
    return false;
}

/* Values that have a word of Megatron's; NULL: a number. */
static const char *word_of(enum shape_word w, uint64_t n)
{
    static const char *const truth[] = { "false", "true" };
    static const char *const norms[] = { "LayerNorm", "RMSNorm" };
    static const char *const positions[] = { [POS_ROPE] = "rope",
                                             [POS_LEARNED] = "learned_absolute",
                                             [POS_ALIBI] = "alibi",
                                             [POS_NONE] = "none" };
    if (w == SHAPE_GATED || w == SHAPE_UNTIED)
        return truth[n != 0];
    if (w == SHAPE_NORM)
        return norms[n != 0];
    return w == SHAPE_POSITION ? positions[n] : NULL;
}

/* What the file says; experts are as wide as other MLPs unless it does. */
static uint64_t of_file(const struct setup *s, enum shape_word w)
{
    if (w == SHAPE_EXPERT_FFN && s->shape[w] == 0)
        return s->shape[SHAPE_FFN];
    return s->shape[w];
}

/* A tokenizer's vocabulary, with or without an end of its own, or padded. */
static bool is_same_vocab(const struct run *r, uint64_t said, uint64_t own)
{
    return said == own || said + 1 == own || said == r->vocab;
}

static void add_difference(char text[ASSUMPTION_TEXT], enum shape_word w,
                           uint64_t said, uint64_t own)
{
    const char *name = shape_word_name(w);
    const char *between = text[0] != '\0' ? "; " : "";
    if (word_of(w, own) != NULL)
        str_append(text, ASSUMPTION_TEXT, "%s%s %s, MODEL's %s", between, name,
                   word_of(w, said), word_of(w, own));
    else
        str_append(text, ASSUMPTION_TEXT, "%s%s %" PRIu64 ", MODEL's %" PRIu64,
                   between, name, said, own);
}

void resolve_compare_shape(struct run *r, const struct spec *s)
{
    enum { ROOM = 110 }; /* of a line of differences */
    char text[ASSUMPTION_TEXT] = "";
    if (!spec_is_language(s) || s->decoder_layers > 0)
        return;
    for (unsigned i = 0; i < SHAPE_COUNT; i++) {
        const enum shape_word w = (enum shape_word)i;
        const uint64_t said = of_file(&r->setup, w);
        uint64_t own = 0;
        if (said == 0 || !of_model(s, w, &own) || said - 1 == own
            || (w == SHAPE_VOCAB && is_same_vocab(r, said - 1, own)))
            continue;
        add_difference(text, w, said - 1, own);
        if (strlen(text) < ROOM)
            continue;
        resolve_note(r, KEY_COUNT,
                     "the launch file is of another model than MODEL: %s",
                     text);
        text[0] = '\0';
    }
    if (text[0] != '\0')
        resolve_note(r, KEY_COUNT,
                     "the launch file is of another model than MODEL: %s",
                     text);
}
