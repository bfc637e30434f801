/*
 * Owns the second loss of models with experts (load_balancing_loss_func): of the
 * logits of all routers, which the model hands to its head. Refuses to know how
 * these are made. [docs/method.md eq. hf]
 */
#include "lower/hf.h"

#include "base/banned.h"

/* What came of a layer under a reentrant checkpoint has no graph: the loss is a
 * number there, and trains nothing. */
static bool has_graph(const struct builder *b)
{
    return b->run->recompute != RECOMP_FULL || !b->run->recompute_reentrant;
}

/* Granite's routers give fp32, Ernie's are. */
static enum dtype logits_type(const struct builder *b)
{
    static const enum family wide[] = { FAM_GRANITEMOE, FAM_GRANITEMOES,
                                        FAM_GRANITE_HYB, FAM_ERNIE_MOE };
    if (IS_AMONG(b->spec->family, wide))
        return DT_FP32;
    return b->autocast ? b->compute : b->stream;
}

void hf_balance_begin(struct builder *b)
{
    const struct spec *m = b->whole;
    uint64_t layers = 0;
    for (uint64_t i = 0; i < m->layers && m->balances; i++)
        layers += pattern_has(&m->sparse, i) ? 1 : 0;
    if (layers == 0 || m->experts == 0 || m->head != HEAD_LM)
        return;
    const struct shape shape = SHAPE(DIM("layers", layers), b->t, b->experts);
    b->balance = build_tensor(b, "logits of routers", logits_type(b), &shape);
}

/* A hook on the router puts them into a list (OutputRecorder), and they are an
 * output of the model. */
void hf_balance_note(struct builder *b, tensor_id logits)
{
    if (b->balance == TENSOR_NONE)
        return;
    hf_linger(b, logits);
    build_hold(b, logits);
    if (!has_graph(b) || !tensor_of(b, logits)->needs_grad
        || b->block->kind != BLOCK_LAYER || run_prefixes(b->run))
        return;
    b->p->tensor[b->balance].needs_grad = true;
    b->block->memory = logits;
    b->block->memory_waits = b->block->hands_far = true;
}

/* Layer by layer: softmax, the chosen counted, probabilities summed up; then the
 * product of both. Its node is the youngest: gradients of all logits are made
 * before the head's, and wait for their layers. */
tensor_id hf_balance_loss(struct builder *b, tensor_id loss)
{
    if (b->balance == TENSOR_NONE)
        return loss;
    const struct shape all = shape_of(b, b->balance);
    const struct shape each = SHAPE(b->experts), one = SHAPE(b->one);
    const enum dtype dtype =
        b->autocast ? DT_FP32 : tensor_of(b, b->balance)->dtype;
    const tensor_id in[] = { loss, b->balance };
    const tensor_id out =
        build_tensor(b, "loss", tensor_of(b, loss)->dtype, &one);
    struct op *op = build_op(b, OP_FUSED, "routers' loss", in, 2);
    op_result(b, op, out);
    op_byproduct(op, build_tensor(b, "routing weights", dtype, &all));
    op_byproduct(op, build_tensor(b, "tokens of experts", DT_FP32, &each));
    if (tensor_of(b, b->balance)->needs_grad) {
        op->keep_out = 1u << 1 | 1u << 2; /* weights, tokens */
        b->block->memory = b->balance;
        b->block->hands_far = true;
    }
    return out;
}
