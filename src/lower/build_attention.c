/*
 * Owns the core of attention: the products and the softmax that eager code
 * spells out, and the kernels that fuse them, with their FLOPs under a causal
 * mask and a window. Refuses to know projections and rotary embeddings, and
 * which kernel an implementation asks for. [docs/method.md eq. flops]
 */
#include "lower/build_private.h"

#include "base/banned.h"

/* Keys that a query attends to, on average over the sequence, as a share of
 * all s of them: under a causal mask half. */
static double causal_share(const struct builder *b)
{
    const double s = (double)b->s.n;
    if (b->attends_all)
        return 1;
    if (run_prefixes(b->run)) /* half of the words, all of what is before */
        return 1 - (double)b->sq.n / 2 / s;
    if (b->window == 0 || b->window >= b->s.n)
        return 0.5;
    const double w = (double)b->window;
    if (b->spec->chunked)
        return w / 2 / s;
    if (b->spec->block_stride > 0) { /* beyond near blocks one of so many */
        const double near = (w * s - w * w / 2) / s / s;
        return near + (0.5 - near) / (double)b->spec->block_stride;
    }
    return (w * s - w * w / 2) / s / s;
}

tensor_id build_matmul(struct builder *b, const char *name, tensor_id x,
                       tensor_id y, const struct shape *shape)
{
    tensor_id in[] = { x, y };
    for (unsigned i = 2; i-- > 0;) /* the last argument first */
        in[i] = build_autocast(b, "autocast", in[i]);
    const tensor_id out =
        build_tensor(b, name, tensor_of(b, in[0])->dtype, shape);
    struct op *op = build_op(b, OP_MATMUL, name, in, 2);
    op_result(b, op, out);
    const struct tensor *t = tensor_of(b, x);
    const uint64_t inner = t->rank == 0 ? 1 : t->dim[t->rank - 1].n;
    op->flop_full = 2.0 * (double)tensor_of(b, out)->elems * (double)inner;
    op->flop_causal =
        op->flop_full * (b->core_attention ? causal_share(b) : 1.0);
    return out;
}

tensor_id build_softmax(struct builder *b, const char *name, tensor_id x,
                        enum dtype dtype)
{
    if (b->autocast)
        dtype = DT_FP32;
    /* CUDA has a kernel from fp16 to fp32, none from bf16
       (aten/src/ATen/native/SoftMax.cpp) */
    if (tensor_of(b, x)->dtype == DT_BF16)
        x = build_cast(b, "softmax input", x, dtype);
    const tensor_id in[] = { x, TENSOR_NONE };
    const struct shape shape = shape_of(b, x);
    return build_one_result(b, OP_SOFTMAX, name, in,
                            build_tensor(b, name, dtype, &shape));
}

struct shape shape_scores(const struct builder *b)
{
    return SHAPE(b->micro, b->a, b->sq, b->s);
}

void build_flash_unused(struct builder *b)
{
    const struct shape one = SHAPE(b->one);
    const tensor_id unused = build_tensor(b, "unused", DT_INT64, &one);
    op_byproduct(&b->p->op[b->p->n_ops - 1], unused);
}

bool attention_is_efficient(const struct builder *b)
{
    return b->run->attention == ATTN_SDPA && b->compute == DT_FP32;
}

tensor_id build_attention(struct builder *b, const struct attention_args *at)
{
    /* the efficient kernel pads its statistics to this many rows
       (aten/src/ATen/native/transformers/cuda/attention.cu) */
    enum { EFFICIENT_ROWS = 32 };
    /* arguments of one call, cast from the last to the first */
    tensor_id in[] = { at->q, at->k, at->v };
    for (unsigned i = 3; i-- > 0;)
        in[i] = build_autocast(b, "autocast", in[i]);
    struct dim rows = b->sq;
    if (at->efficient) {
        const struct count padded =
            count_round_up(count_of(b->sq.n), EFFICIENT_ROWS);
        rows = DIM("ceil32(s)", build_checked(b, padded));
    }
    const struct shape lse_shape = SHAPE(b->micro, b->a, rows);
    const struct shape rng_shape = SHAPE(DIM("2", 2));
    const tensor_id out =
        build_like(b, at->name, build_is_latent(b) ? in[2] : in[0]);
    const tensor_id lse = build_tensor(b, "log-sum-exp", DT_FP32, &lse_shape);
    const tensor_id rng = build_tensor(b, "random state", DT_INT64, &rng_shape);
    struct op *op = build_op(b, at->efficient ? OP_SDPA : OP_FLASH_ATTENTION,
                             at->name, in, 3);
    op_result(b, op, out);
    op_byproduct(op, lse);
    op_byproduct(op, rng);
    op->core_attention = true;
    op->in_8_bits = b->run->fp8_attention && b->fp8 && !at->efficient;
    /* scores, then their product with v: a multiply-add an element of q and of
       the result, a key */
    op->flop_full = 2.0
                    * ((double)tensor_of(b, in[0])->elems
                       + (double)tensor_of(b, out)->elems)
                    * (double)b->s.n;
    op->flop_causal = op->flop_full * causal_share(b);
    return out;
}
