/*
 * Owns what transformers' tensor parallelism puts around a product whose weight
 * is a DTensor: the sum over ranks of gradients before it, of results behind
 * it, each in memory of its own, and whole logits. Refuses to know which
 * products there are. [docs/method.md eq. hf-tp]
 */
#include "lower/hf.h"

#include "base/banned.h"

/* DTensor.from_local with Replicate: each product's own, so that each gradient
 * is summed over the ranks, a copy (ColwiseParallel). */
tensor_id hf_to_columns(struct builder *b, tensor_id x)
{
    if (b->run->tp == 1)
        return x;
    const struct shape shape = shape_of(b, x);
    const tensor_id y = build_view(b, "replicated", x, &shape);
    struct op *op = &b->p->op[b->p->n_ops - 1];
    op->keep_in = 1;
    op->one_way = true;
    op->group = COMM_TP;
    return y;
}

/* redistribute of Partial: a clone that is reduced (_functional_collectives);
 * its gradient is handed on as it is. */
tensor_id hf_from_rows(struct builder *b, const char *name, tensor_id x)
{
    if (b->run->tp == 1)
        return x;
    const tensor_id y = build_unary(b, OP_ALL_REDUCE, name, x);
    struct op *op = &b->p->op[b->p->n_ops - 1];
    op->one_way = true;
    op->group = COMM_TP;
    return y;
}

/* MaskPartial: those of other ranks' words are the first of this one's. */
tensor_id hf_own_ids(struct builder *b)
{
    const struct shape rows = SHAPE(b->t);
    return b->run->tp == 1 ? b->ids
                           : build_copy_as(b, "own ids", b->ids, &rows);
}

/* embedding_dense_backward knows no sharded rows: each rank's gradient of the
 * table is of all words (torch/distributed/tensor/_ops/_embedding_ops.py). */
void hf_whole_gradient(struct builder *b, tensor_id table)
{
    if (b->run->tp > 1 && !b->spec->tied)
        b->p->tensor[table].grad_copies = b->run->tp;
}

/* redistribute of Shard(-1): ranks' parts one after another, then side by side
 * (all_gather_tensor); of the gradient a rank takes a copy of its part. */
tensor_id hf_whole_logits(struct builder *b, tensor_id logits)
{
    if (b->run->tp == 1)
        return logits;
    b->V = DIM("V", build_product(b, b->V.n, b->run->tp));
    const struct shape whole = shape_last(b, logits, b->V);
    const tensor_id parts =
        build_collective(b, OP_ALL_GATHER, COMM_TP, logits, &whole);
    b->p->op[b->p->n_ops - 1].one_way = true;
    const tensor_id y = build_copy(b, "whole logits", parts);
    build_place(b, PLACE_GRADIENT);
    hf_hold(b, "output", logits);
    return y;
}
