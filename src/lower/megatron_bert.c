/*
 * Owns the ends of Megatron-core's BertModel (core/models/bert/bert_model.py,
 * bert_lm_head.py, pooler.py; pretrain_bert.py): token types, the product and
 * norm before the output layer, the pooler and the pair loss. Its layers are
 * those of a GPT, norms first and one at the end, whatever the file's family
 * has. Refuses to know layers and the loss of words.
 */
#include "lower/megatron_bert.h"

#include "base/banned.h"

static bool has_pair(const struct builder *b)
{
    return b->spec->head == HEAD_PRETRAINING;
}

const char *megatron_bert_missing(const struct builder *b)
{
    if (b->spec->head != HEAD_MASKED_LM && !has_pair(b))
        return "heads of BERT other than those of pretraining";
    if (b->run->sequence_parallel && b->run->tp > 1)
        return "sequence parallel BERT";
    return NULL;
}

/* types, is_random as [b, s], padding_mask: int64, all broadcast
 * (pretrain_bert.py, get_batch). */
void megatron_bert_inputs(struct builder *b)
{
    const struct shape tokens = SHAPE(b->t), each = SHAPE(b->micro);
    build_input(b, "types", DT_INT64, &tokens);
    build_input(b, "padding_mask", DT_INT64, &tokens);
    build_input(b, "is_random", DT_INT64, &each);
}

/* core/models/common/embeddings/language_model_embedding.py */
tensor_id megatron_bert_types(struct builder *b, tensor_id x)
{
    if (!has_pair(b) || b->spec->token_types == 0)
        return x;
    const struct shape shape = shape_of(b, x);
    const tensor_id table = build_param(
        b, &(struct param){ .name = "tokentype_embeddings",
                            .group = PG_POSITION,
                            .rows = DIM("types", b->spec->token_types),
                            .cols = b->h });
    const tensor_id types =
        build_embedding(b, "token types", b->ids, table, &shape);
    return build_add(b, "embedding sum", x, types);
}

/* torch.nn.Linear, whole on each rank (transformer/utils.py,
 * get_linear_layer). */
static tensor_id dense(struct builder *b, const char *name, tensor_id x,
                       struct dim out)
{
    return build_linear(b, &(struct linear){ .name = name,
                                             .x = x,
                                             .in = b->h,
                                             .out = out,
                                             .group = PG_HEAD,
                                             .bias = true });
}

static tensor_id pooled(struct builder *b, tensor_id x)
{
    const struct shape one = SHAPE(b->micro, b->h);
    const tensor_id first = build_view(b, "first token", x, &one);
    return build_unary(b, OP_TANH, "pooled", dense(b, "pooler", first, b->h));
}

/* The bias is added apart, to a new tensor (core/tensor_parallel/layers.py,
 * LinearWithGradAccumulationAndAsyncCommunication). */
static tensor_id logits_of(struct builder *b, tensor_id x)
{
    const tensor_id weight = build_head_weight(b, "output_layer", b->h);
    struct linear l = linear_of_head(b, "output_layer", x, weight);
    l.bias = false;
    const tensor_id y = build_column(b, &l);
    const tensor_id bias =
        build_bias(b, "output_layer", PG_HEAD, b->V, b->spec->vocab);
    return build_add(b, "logits", y, bias);
}

static tensor_id pair_loss(struct builder *b, tensor_id first)
{
    const tensor_id pair = dense(b, "binary_head", first, DIM("2", 2));
    const tensor_id up = build_cast(b, "pair fp32", pair, DT_FP32);
    return build_cross_entropy(b, "pair loss", up, b->labels);
}

tensor_id megatron_bert_head(struct builder *b, tensor_id x,
                             megatron_loss_fn *words_loss)
{
    const tensor_id first = has_pair(b) ? pooled(b, x) : TENSOR_NONE;
    tensor_id weight, bias;
    tensor_id y = dense(b, "lm_head.dense", x, b->h);
    y = build_unary(b, OP_ACTIVATION, "gelu", y);
    build_norm_weights(b, b->h, &weight, &bias);
    y = build_layer_norm(b, "lm_head.layer_norm", y, weight, bias);
    const tensor_id loss = words_loss(b, logits_of(b, y));
    if (!has_pair(b))
        return loss;
    return build_add(b, "loss", loss, pair_loss(b, first));
}
