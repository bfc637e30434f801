/*
 * Owns what Megatron's two kinds of layers share: what the data loader puts on
 * the GPU, norms, learned positions, the vocabulary-parallel cross entropy, and
 * what neither has. Refuses to know what a layer keeps.
 */
#include "lower/megatron.h"
#include "lower/megatron_bert.h"

#include "base/banned.h"

bool megatron_recomputes(const struct builder *b, enum recompute_module m)
{
    return (b->run->recompute_modules >> m & 1) != 0;
}

static bool offloads(const struct builder *b, enum offload_module m)
{
    return m < OFFMOD_COUNT && (b->run->offload_modules >> m & 1) != 0;
}

void megatron_module(struct builder *b, enum offload_module m)
{
    b->module = offloads(b, m) ? (uint8_t)(1 + m) : 0;
}

void megatron_graphed(struct builder *b, enum cuda_graph_scope part)
{
    const struct run *r = b->run;
    const uint64_t scope = r->cuda_graph_scope;
    b->graphed = r->cuda_graph && (scope == 0 || (scope >> part & 1) != 0);
}

void megatron_offloaded(struct builder *b, enum offload_module m,
                        const tensor_id *held, unsigned n)
{
    b->module = 0;
    if (!offloads(b, m))
        return;
    struct op *op = build_op(b, OP_RELEASE, "offload", held, n);
    op->module = (uint8_t)(1 + m);
    op->commits = true;
}

tensor_id megatron_norm(struct builder *b, const char *name, tensor_id x,
                        struct dim n)
{
    tensor_id weight, bias;
    build_norm_weights(b, n, &weight, &bias);
    if (b->spec->norm == NORM_RMS)
        return build_rms_norm(b, name, x, weight);
    return build_layer_norm(b, name, x, weight, bias);
}

/* core/tensor_parallel/layers.py, VocabParallelEmbedding: places in this rank's
 * part of the table, and which words are in another's; backward needs both. */
tensor_id megatron_lookup(struct builder *b, tensor_id table, tensor_id ids)
{
    const struct shape whole = SHAPE(b->t, b->h), rows = SHAPE(b->t);
    if (b->run->tp <= 1)
        return build_embedding(b, "word_embeddings", ids, table, &whole);
    const tensor_id mask = build_tensor(b, "other words", DT_BOOL, &rows);
    op_result(b, build_op(b, OP_COPY, "other words", &ids, 1), mask);
    ids = build_copy(b, "masked words", ids);
    const tensor_id x =
        build_embedding(b, "word_embeddings", ids, table, &whole);
    const tensor_id in[] = { x, mask };
    const tensor_id y = build_alias(b, "word_embeddings", x, &whole);
    op_result(b, build_op(b, OP_WHERE, "other words", in, 2), y);
    return y;
}

void megatron_recalls(struct builder *b, uint32_t first, tensor_id x)
{
    if (first >= b->p->n_ops || b->p->op[first].region != 1 + REMOD_LAYERNORM)
        return;
    for (uint32_t k = b->p->n_ops; k-- > first;) {
        struct op *op = &b->p->op[k];
        if (op->n_out > 0 && op->out[0] == x) {
            op->recalls = first + 1;
            return;
        }
    }
}

tensor_id megatron_positions(struct builder *b, tensor_id x)
{
    const struct shape shape = SHAPE(b->sq, b->h);
    const tensor_id table = build_position_table(b, "position_embeddings");
    const tensor_id y = build_embedding(b, "positions", b->ids, table, &shape);
    return build_add(b, "embedding sum", x, y);
}

tensor_id megatron_cross_entropy(struct builder *b, tensor_id logits,
                                 tensor_id labels)
{
    const struct shape shape = shape_of(b, logits), rows = SHAPE(b->t);
    const tensor_id loss = build_tensor(b, "loss", DT_FP32, &rows);
    const tensor_id softmax = build_alias(b, "softmax", logits, &shape);
    const tensor_id mask = build_tensor(b, "target mask", DT_BOOL, &rows);
    const tensor_id index = build_tensor(b, "target", DT_INT64, &rows);
    const tensor_id in[] = { logits, labels };
    struct op *op = build_op(b, OP_CROSS_ENTROPY, "cross entropy", in, 2);
    op->place = PLACE_KEPT;
    op_result(b, op, loss);
    op_byproduct(op, softmax);
    op_byproduct(op, mask);
    op_byproduct(op, index);
    return loss;
}

/* A mask that nothing of a layer keeps goes with forward_step's variables,
 * after the loss (pretrain_gpt.py): no kernel of causal attention reads it, but
 * a checkpoint keeps what it was called with. */
static void attention_mask(struct builder *b, bool read)
{
    const struct run *r = b->run;
    const struct shape shape = SHAPE(b->micro, b->one, b->s, b->s);
    const bool passes = !read && !r->replay_batches
                        && r->framework != FW_MEGATRON_DEEPSPEED
                        && r->recompute != RECOMP_FULL
                        && !megatron_recomputes(b, REMOD_CORE_ATTN);
    if (!passes) {
        build_input(b, "attention_mask", DT_BOOL, &shape);
        return;
    }
    const tensor_id id = build_shared(b, "attention_mask", DT_BOOL, &shape);
    b->p->tensor[id].held = true;
}

/* What the data loader puts on the GPU beside tokens and labels, and the rope
 * table (megatron/training/utils.py get_batch_on_this_tp_rank). */
void megatron_inputs(struct builder *b, bool reads_mask)
{
    const struct shape tokens = SHAPE(b->t);
    build_input(b, "position_ids", DT_INT64, &tokens);
    build_input(b, "loss_mask", DT_FP32, &tokens);
    if (megatron_is_bert(b))
        megatron_bert_inputs(b);
    if (b->spec->decoder_layers > 0) { /* pretrain_t5.py, get_batch */
        const struct shape targets = build_targets(b);
        b->target_ids = build_input(b, "text_dec", DT_INT64, &targets);
        build_input(b, "enc_mask", DT_INT64, &tokens);
        build_input(b, "dec_mask", DT_INT64, &targets);
    }
    if (b->run->mask == MASK_DATALOADER)
        attention_mask(b, reads_mask);
    /* latent attention has tables of its own, a layer */
    if (b->spec->position == POS_ROPE && !build_is_latent(b)) {
        const struct shape table =
            SHAPE(b->sq, DIM("rotary", b->spec->rotary_dim));
        const tensor_id shared =
            build_shared(b, "rotary_pos_emb", DT_FP32, &table);
        b->p->tensor[shared].rotary = true;
        b->p->tensor[shared].rests = true; /* rotary_pos_embedding.py: cached */
    }
    build_memory(b);
}

const char *megatron_missing(const struct builder *b)
{
    const struct spec *m = b->spec;
    if (!pattern_is_all(&m->attends))
        return "layers without attention";
    if (m->attention_gate)
        return "gated attention";
    if (m->bidirectional)
        return "encoders but BERT";
    if (m->relative_buckets > 0)
        return "relative position biases";
    if (m->residual_scale)
        return "scaled residual branches";
    if (m->index_heads > 0)
        return "indexer of keys";
    if (m->router == ROUTER_INPUT && m->experts > 0)
        return "router scores on the input of experts";
    if (m->qk_norm == QK_UNIT)
        return "norms of rotated queries and keys";
    if (m->parallel_residual)
        return "parallel attention and mlp";
    if (m->place != PLACE_PRE)
        return "norms after attention and mlp";
    if (m->embed_dim != 0 && m->embed_dim != m->hidden)
        return "embeddings narrower than the hidden size";
    if (m->qk_norm != QK_NONE && m->qk_norm != QK_PER_HEAD)
        return "norm over whole queries and keys";
    if (m->attn_softcap > 0 || m->final_softcap > 0)
        return "soft capping of scores or logits";
    if (m->logit_scale != 0 && m->logit_scale != 1)
        return "scaled logits";
    return NULL;
}
