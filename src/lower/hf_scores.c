/*
 * Owns what becomes of attention's scores where a class writes it out: scale,
 * biases, mask, sinks and softmax, in the order and precision of the class.
 * Refuses to know the products around it (hf_attention.c).
 */
#include "lower/hf.h"

#include "base/banned.h"

bool hf_scores_in_fp32(enum family family)
{
    return family == FAM_GPTJ || family == FAM_GPT_NEO;
}

static tensor_id softcap(struct builder *b, tensor_id scores)
{
    if (!(b->spec->attn_softcap > 0))
        return scores;
    scores = build_scale(b, "scores / cap", scores);
    scores = build_unary(b, OP_TANH, "tanh", scores);
    return build_scale(b, "scores * cap", scores);
}

tensor_id hf_mask(const struct builder *b, const struct hf_qkv *o)
{
    if (o->mask != TENSOR_NONE)
        return o->mask;
    if (b->attends_all)
        return b->spec->bidirectional ? hf_table(b, HF_MASK) : TENSOR_NONE;
    const tensor_id sliding = hf_table(b, HF_MASK_SLIDING);
    if (b->window != 0 && sliding != TENSOR_NONE)
        return sliding;
    return hf_table(b, HF_MASK);
}

/* One a head. */
tensor_id hf_sinks(struct builder *b)
{
    return build_vector(b, "sinks", PG_ATTENTION, b->a, b->spec->heads);
}

/* GptOssAttention: a logit a head beside the keys', what is above the largest
 * taken away, softmax, and the sink's share dropped. */
tensor_id hf_with_sinks(struct builder *b, tensor_id scores)
{
    const struct dim more = DIM("s+1", b->s.n + 1);
    const struct shape wider = SHAPE(b->micro, b->a, b->sq, more);
    const struct shape square = shape_scores(b);
    const tensor_id sinks = hf_sinks(b);
    const tensor_id all = build_cat(b, "with sinks", scores, sinks, &wider);
    tensor_id place;
    const tensor_id most = build_topk(b, "max", all, b->one, &place);
    const tensor_id less = build_add(b, "- max", all, most);
    const tensor_id p =
        build_softmax(b, "softmax", less, tensor_of(b, less)->dtype);
    return build_view(b, "without sinks", p, &square);
}

static bool is_baichuan_13b(const struct spec *m)
{
    return m->family == FAM_BAICHUAN && m->position == POS_ALIBI;
}

static bool is_bounded(const struct spec *m)
{
    return m->family == FAM_INTERNLM || is_baichuan_13b(m);
}

/* Scale, alibi and mask of one class's scores. */
typedef tensor_id biased_fn(struct builder *b, const struct hf_qkv *o,
                            tensor_id scores);

/* Unscaled; a causal buffer, then the mask. */
static tensor_id gpt_neo_biased(struct builder *b, const struct hf_qkv *o,
                                tensor_id scores)
{
    const tensor_id mask = hf_mask(b, o);
    scores = build_where(b, "causal", o->causal, scores);
    return build_add(b, "masked", scores, mask);
}

/* DiT: queries are scaled, by timm's Attention; AttnProcessor's baddbmm does
 * it. */
static tensor_id unbiased(struct builder *b, const struct hf_qkv *o,
                          tensor_id scores)
{
    (void)b;
    (void)o;
    return scores;
}

/* baddbmm scales and adds alibi. */
static tensor_id bloom_biased(struct builder *b, const struct hf_qkv *o,
                              tensor_id scores)
{
    return build_add(b, "masked", scores, hf_mask(b, o));
}

static tensor_id mpt_biased(struct builder *b, const struct hf_qkv *o,
                            tensor_id scores)
{
    const tensor_id alibi = hf_table(b, HF_ALIBI), mask = hf_mask(b, o);
    scores = build_scale(b, "scaled", scores);
    scores = build_add(b, "+ alibi", scores, alibi);
    return build_where(b, "masked", mask, scores);
}

static tensor_id falcon_biased(struct builder *b, const struct hf_qkv *o,
                               tensor_id scores)
{
    const tensor_id alibi = hf_table(b, HF_ALIBI), mask = hf_mask(b, o);
    if (alibi == TENSOR_NONE) {
        scores = build_unary_in_place(b, OP_SCALE, "scaled", scores);
        return build_add(b, "masked", scores, mask);
    }
    if (hf_is_half(tensor_of(b, scores)->dtype))
        scores = build_cast(b, "scores fp32", scores, DT_FP32);
    scores = build_add(b, "+ alibi", scores, alibi);
    scores = build_unary_in_place(b, OP_SCALE, "scaled", scores);
    return build_add(b, "masked", scores, mask);
}

static tensor_id most_biased(struct builder *b, const struct hf_qkv *o,
                             tensor_id scores)
{
    const tensor_id alibi = hf_table(b, HF_ALIBI), mask = hf_mask(b, o);
    if (b->spec->family == FAM_GROK)
        scores = build_cast(b, "scores fp32", scores, DT_FP32);
    scores = softcap(b, build_scale(b, "scaled", scores));
    if (o->bias != TENSOR_NONE)
        scores = build_add(b, "+ position bias", scores, o->bias);
    if (mask == TENSOR_NONE) /* encoders */
        return scores;
    if (alibi != TENSOR_NONE)
        scores = build_add(b, "+ alibi", scores, alibi);
    scores = build_add(b, "masked", scores, mask);
    /* torch.max of them and the least number, which keeps what it is given */
    if (is_bounded(b->spec))
        scores = build_unary(b, OP_ACTIVATION, "bounded", scores);
    return scores;
}

static biased_fn *biased_of(enum family family)
{
    static const struct {
        enum family family;
        biased_fn *biased;
    } others[] = {
        { FAM_GPT_NEO, gpt_neo_biased }, { FAM_DIT, unbiased },
        { FAM_DIT_DIFFUSERS, unbiased }, { FAM_BLOOM, bloom_biased },
        { FAM_MPT, mpt_biased },         { FAM_FALCON, falcon_biased },
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].family == family)
            return others[i].biased;
    return most_biased;
}

tensor_id hf_biased(struct builder *b, const struct hf_qkv *o, tensor_id scores)
{
    return biased_of(b->spec->family)(b, o, scores);
}

/* Their softmax says no dtype, and nothing is cast back. */
static bool family_is_bert(enum family family)
{
    if (family_is_t5(family) || family == FAM_BART)
        return true;
    if (family == FAM_WHISPER || family == FAM_DIT || family == FAM_LLAMA4)
        return true;
    if (family == FAM_LLAMA4_VISION)
        return true;
    return family == FAM_BERT || family == FAM_ROBERTA
           || family == FAM_DISTILBERT;
}

tensor_id hf_probabilities(struct builder *b, const struct hf_qkv *o,
                           tensor_id scores)
{
    const enum family family = b->spec->family;
    enum dtype in = DT_FP32, out = tensor_of(b, o->q.x)->dtype;
    if (family == FAM_FALCON)
        in = out = o->hidden;
    if (family == FAM_GPT2 || family == FAM_MPT || hf_scores_in_fp32(family))
        out = tensor_of(b, o->v.x)->dtype;
    if (family == FAM_GPT2 || family == FAM_DIT_DIFFUSERS
        || family_is_bert(family) || is_baichuan_13b(b->spec))
        in = tensor_of(b, scores)->dtype;
    if (family == FAM_PHI_MSFT)
        in = out = tensor_of(b, o->v.x)->dtype;
    const tensor_id given = scores;
    if (family == FAM_FALCON)
        scores = build_cast(b, "softmax input", scores, in);
    const bool autocasts = b->autocast;
    if (family == FAM_PHI_MSFT) /* a type that is asked for is given */
        b->autocast = false;
    tensor_id p = build_softmax(b, "softmax", scores, in);
    b->autocast = autocasts;
    if (!family_is_bert(family) && !is_baichuan_13b(b->spec))
        p = build_cast(b, "probabilities", p, out);
    hf_hold(b, "attn_weights", given); /* until p has the name */
    if (family == FAM_FALCON && b->spec->position == POS_ROPE)
        return p; /* this branch has no dropout */
    return build_dropout(b, "attention dropout", p, b->run->attention_dropout);
}
