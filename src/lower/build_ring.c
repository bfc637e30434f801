/*
 * Owns what torch's context_parallel, which Accelerate, transformers' Trainer
 * and torchtitan cut sequences by, has around the kernel of attention: keys and
 * values of all ranks, or of the next ones, and what partial results are merged
 * with in fp32. Refuses to know the kernel. [docs/method.md eq. ring]
 */
#include "lower/build.h"

#include "base/banned.h"

enum { WIDE = 4 }; /* bytes: _cp_options.convert_to_f32 */

/* Bytes of this rank's keys and values, and of as many in fp32. */
struct pair {
    uint64_t own, wide;
};

static struct pair keys_of(const struct builder *b, const struct op *op)
{
    const struct tensor *k = tensor_of(b, op->in[1]);
    const struct tensor *v = tensor_of(b, op->in[2]);
    return (struct pair){ k->bytes + v->bytes, WIDE * (k->elems + v->elems) };
}

/* Gathered they are all there to the end; going round, those at work and those
 * that come in for the next turn, of which the last has none. */
static uint64_t arrived(struct builder *b, const struct pair *kv)
{
    const uint64_t ranks = b->run->cp_comm == CP_ALL_GATHER
                               ? b->run->cp
                               : min_u64(b->run->cp - 1, 2);
    return build_product(b, ranks, kv->own);
}

/* Merged: the result so far and the new part, both in fp32, their difference
 * times its share, and what is left (_SDPAMerger._merge_one); three numbers a
 * row: both log-sum-exps, the new one's share. The new part itself is counted
 * as the kernel's result, its log-sum-exp as the kernel's. */
static uint64_t merging(const struct builder *b, const struct op *op)
{
    enum { PARTS = 4, ROWS = 2 };
    return PARTS * WIDE * tensor_of(b, op->out[0])->elems
           + ROWS * tensor_of(b, op->out[1])->bytes;
}

/* In the second turn, while the kernel runs: three gradients in fp32, two
 * copies of the last two, going out and come in, the last turn's gradients,
 * and the keys and values that were sent; the turn's own, of half the keys, are
 * the kernel's result but for that half (_templated_ring_attention_backward). */
static uint64_t backward(const struct op *op, const struct builder *b,
                         const struct pair *kv, uint64_t there)
{
    enum { COPIES = 3 };
    const struct tensor *q = tensor_of(b, op->in[0]);
    return WIDE * q->elems + q->bytes + COPIES * kv->wide + there + kv->own
           + kv->own / 2;
}

static void beside(struct builder *b, struct op *op, const char *name,
                   uint64_t bytes)
{
    const struct shape shape = SHAPE(DIM("elements", div_up(bytes, WIDE)));
    op_byproduct(op, build_tensor(b, name, DT_FP32, &shape));
}

void build_ring(struct builder *b)
{
    struct op *op = &b->p->op[b->p->n_ops - 1];
    const struct pair kv = keys_of(b, op);
    const uint64_t there = arrived(b, &kv);
    op->keep_out = (UINT32_C(1) << op->n_out) - 1; /* and none of these */
    beside(b, op, "keys and values of other ranks", there);
    beside(b, op, "partial results", merging(b, op));
    op->back_bytes = backward(op, b, &kv, there);
}
