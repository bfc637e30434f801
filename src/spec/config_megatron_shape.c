/*
 * Owns what a Megatron script says of its model: MODEL is another file's, and
 * resolve_shape.c holds one against the other.
 * [megatron/training/arguments.py, core_v0.16: validate_args]
 */
#include "spec/config_megatron.h"

#include "base/banned.h"

/* Megatron-DeepSpeed's own; its --num-experts 1 is a dense model. */
#define MDS_KV_HEADS "num_key_value_heads"

static bool said(const struct config *c, enum shape_word w)
{
    return c->s->shape[w] > 0;
}

static void say(struct config *c, enum shape_word w, uint64_t n)
{
    if (n < UINT32_MAX)
        c->s->shape[w] = (uint32_t)n + 1;
}

static uint64_t value(const struct config *c, enum shape_word w)
{
    return said(c, w) ? c->s->shape[w] - 1 : 0;
}

static void fill(struct config *c, enum shape_word w, uint64_t n)
{
    if (!said(c, w))
        say(c, w, n);
}

static bool is_said(const struct config *c, const char *key, const char *word)
{
    const struct json *v = config_at(c, key);
    return v != NULL && v->kind == JSON_STRING
           && str_same_name(v->text, str_of(word));
}

/* NeMo writes these words small. layernorm1p is a LayerNorm. */
static void norm(struct config *c)
{
    static const char key[] = "normalization";
    if (is_said(c, key, "RMSNorm"))
        say(c, SHAPE_NORM, 1);
    else if (is_said(c, key, "LayerNorm") || is_said(c, key, "layernorm1p"))
        say(c, SHAPE_NORM, 0);
}

/* Of T5's relative ones, and others that NeMo has, nothing is said. */
static void positions(struct config *c)
{
    static const struct {
        const char *word;
        enum position is;
    } words[] = { { "rope", POS_ROPE },   { "mrope", POS_ROPE },
                  { "yarn", POS_ROPE },   { "learned_absolute", POS_LEARNED },
                  { "alibi", POS_ALIBI }, { "none", POS_NONE } };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (is_said(c, "position_embedding_type", words[i].word))
            say(c, SHAPE_POSITION, words[i].is);
    if (config_flag_given(c, "use_rotary_position_embeddings"))
        say(c, SHAPE_POSITION, POS_ROPE);
}

/* Flags that define a model define it whole: what is not there has Megatron's
 * default. */
static void fill_defaults(struct config *c, bool gated, bool swiglu)
{
    enum { STEP = 64 };
    const uint64_t hidden = value(c, SHAPE_HIDDEN);
    const uint64_t heads = value(c, SHAPE_HEADS);
    fill(c, SHAPE_GATED, gated);
    fill(c, SHAPE_UNTIED, 0);
    fill(c, SHAPE_EXPERTS, 0);
    if (!config_flag_given(c, "normalization"))
        fill(c, SHAPE_NORM, 0);
    if (!config_flag_given(c, "position_embedding_type")
        && !config_flag_given(c, "no_position_embedding"))
        fill(c, SHAPE_POSITION, POS_LEARNED);
    fill(c, SHAPE_FFN, swiglu ? 4 * hidden * 2 / 3 / STEP * STEP : 4 * hidden);
    if (config_flag_given(c, "multi_latent_attention"))
        return;
    if (!config_flag_given(c, "group_query_attention")
        && !config_flag_given(c, MDS_KV_HEADS))
        c->s->shape[SHAPE_KV_HEADS] = (uint32_t)heads + 1;
    if (hidden % heads == 0)
        fill(c, SHAPE_HEAD_DIM, hidden / heads);
}

void config_megatron_shape(struct config *c)
{
    static const char *const gates[] = { "swiglu", "quick_geglu",
                                         "glu_activation" };
    char shown[CONFIG_PATH_MAX];
    bool gated = false;
    for (unsigned w = 0; w < SHAPE_COUNT; w++) {
        const char *flag = shape_word_name((enum shape_word)w);
        const bool is_flag = w == SHAPE_GATED || w == SHAPE_UNTIED
                             || w == SHAPE_NORM || w == SHAPE_POSITION;
        const uint64_t n = is_flag ? 0 : config_flag_number(c, flag);
        if (n > 0)
            say(c, (enum shape_word)w, n);
    }
    if (config_flag_number(c, MDS_KV_HEADS) > 0)
        say(c, SHAPE_KV_HEADS, config_flag_number(c, MDS_KV_HEADS));
    if (value(c, SHAPE_EXPERTS) == 1)
        say(c, SHAPE_EXPERTS, 0);
    for (size_t i = 0; i < sizeof gates / sizeof gates[0]; i++)
        gated = gated || config_flag_given(c, gates[i]);
    if (gated)
        say(c, SHAPE_GATED, 1);
    if (config_flag_given(c, shape_word_name(SHAPE_UNTIED)))
        say(c, SHAPE_UNTIED, 1);
    norm(c);
    positions(c);
    if (said(c, SHAPE_LAYERS) && said(c, SHAPE_HIDDEN) && said(c, SHAPE_HEADS)
        && config_shown(c, "", shown)[0] == '-')
        fill_defaults(c, gated, config_flag_given(c, gates[0]));
}
