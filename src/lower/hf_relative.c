/*
 * Owns T5's position biases: a number for each head and pair of places, looked
 * up by how far these lie apart, which attention adds to its scores. T5's first
 * layer of a stack does it for all, UMT5's layers each for themselves; between
 * decoder and encoder they are zeros (models/t5/modeling_t5.py,
 * T5Attention.forward). Refuses to know what becomes of scores (hf_scores.c).
 */
#include "lower/hf.h"

#include "base/banned.h"

static bool is_shared(const struct builder *b)
{
    return b->spec->relative_buckets > 0 && b->spec->family != FAM_UMT5;
}

static enum hf_table table_at_hand(const struct builder *b)
{
    if (!b->attends_all)
        return HF_BIAS_DECODER;
    return b->in_decoder ? HF_BIAS_CROSS : HF_BIAS;
}

static struct shape pairs_of_heads(const struct builder *b)
{
    return SHAPE(b->a, b->sq, b->s);
}

void hf_make_biases(struct builder *b)
{
    if (!is_shared(b))
        return;
    const uint64_t decoder = b->spec->layers + 1;
    const uint64_t last = b->spec->layers + b->spec->decoder_layers;
    const struct shape encoder = pairs_of_heads(b);
    const struct shape targets = SHAPE(b->a, b->s_target, b->s_target);
    const struct shape cross = SHAPE(b->a, b->s_target, b->s);
    /* a reentrant checkpoint has what its layer returned in a variable */
    const bool reentrant = b->run->recompute_reentrant;
    const uint64_t more = reentrant ? 0 : 1;
    tensor_id bias = build_shared(b, "position bias", b->stream, &encoder);
    build_span(b, &(struct stack_span){ bias, 0, more, 0, decoder - 2 });
    bias = build_shared(b, "decoder position bias", b->stream, &targets);
    build_span(b, &(struct stack_span){ bias, decoder, decoder + more, decoder,
                                        last });
    bias = build_shared(b, "cross position bias", b->compute, &cross);
    /* where checkpoints are on, T5Attention.forward has it ask for a gradient:
       a leaf, which its node in the graph keeps to the end of backward, but in a
       checkpoint that makes it without a graph */
    const bool asks = b->run->recompute == RECOMP_FULL;
    const uint64_t low = asks && !reentrant ? 0 : decoder;
    b->p->tensor[bias].needs_grad = asks;
    build_span(b, &(struct stack_span){ bias, decoder, low, low, last });
}

/* T5Attention.compute_bias: the lookup keeps the bucket of each pair. */
static tensor_id looked_up(struct builder *b)
{
    const uint64_t buckets = b->spec->relative_buckets;
    const struct shape pairs = SHAPE(b->sq, b->s), all = pairs_of_heads(b);
    const tensor_id table =
        build_param(b, &(struct param){ .name = "relative_attention_bias",
                                        .group = PG_POSITION,
                                        .rows = DIM("buckets", buckets),
                                        .cols = b->a,
                                        .full_elems = build_product(
                                            b, buckets, b->spec->heads) });
    const tensor_id ids = build_copy_as(b, "buckets", b->ids, &pairs);
    const tensor_id values =
        build_embedding(b, "position bias", ids, table, &all);
    if (is_shared(b)) {
        const tensor_id shared = hf_table(b, table_at_hand(b));
        b->p->tensor[values].storage = shared;
        b->p->tensor[shared].needs_grad = tensor_of(b, values)->needs_grad;
    }
    return values;
}

static tensor_id zeros(struct builder *b)
{
    const struct shape all = pairs_of_heads(b);
    const tensor_id out =
        build_tensor(b, "cross position bias", b->compute, &all);
    op_result(b, build_op(b, OP_CAST, "cross position bias", &b->ids, 1), out);
    return out;
}

tensor_id hf_bias(struct builder *b)
{
    const bool cross = b->attends_all && b->in_decoder;
    if (b->spec->relative_buckets == 0)
        return TENSOR_NONE;
    if (!is_shared(b))
        return cross ? zeros(b) : looked_up(b);
    if (b->first && !cross)
        return looked_up(b);
    const struct shape all = pairs_of_heads(b);
    return build_view(b, "position bias", hf_table(b, table_at_hand(b)), &all);
}

/* transformers/integrations/sdpa_attention.py, create_position_bias_mask: -inf
 * (or so) where a query does not look, then an order of its own, as what was
 * looked up lies head by head. */
static tensor_id masked(struct builder *b, tensor_id bias)
{
    const struct shape all = shape_of(b, bias), pairs = SHAPE(b->sq, b->s);
    const bool cross = b->attends_all && b->in_decoder;
    if (!b->attends_all) {
        const tensor_id causal =
            build_tensor(b, "causal mask", DT_BOOL, &pairs);
        op_result(b, build_op(b, OP_CAST, "causal mask", &b->ids, 1), causal);
        bias = build_where(b, "masked bias", causal, bias);
    }
    return cross || b->a.n == 1 ? bias
                                : build_copy_as(b, "bias as mask", bias, &all);
}

tensor_id hf_bias_as_mask(struct builder *b, tensor_id bias, enum dtype dtype,
                          tensor_id *made)
{
    *made = masked(b, bias);
    return build_cast(b, "autocast", *made, dtype);
}
