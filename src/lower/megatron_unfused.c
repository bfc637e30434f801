/*
 * Owns Transformer Engine's attention without a fused kernel
 * (UnfusedDotProductAttention, pytorch/attention/dot_product_attention/
 * backends.py, d0067d0d): the mask that every layer makes for itself, scores,
 * softmax, dropout, context. Knows neither projections nor what runs instead.
 */
#include "lower/megatron.h"

#include "base/banned.h"

static tensor_id made(struct builder *b, const char *name, enum dtype dtype,
                      const struct shape *shape, tensor_id from)
{
    const tensor_id y = build_tensor(b, name, dtype, shape);
    op_result(b, build_op(b, OP_COPY, name, &from, 1), y);
    return y;
}

/* Where left <= 0 and right >= 0 does not hold. */
static tensor_id outside(struct builder *b, const struct shape *shape,
                         tensor_id left, tensor_id right)
{
    const tensor_id from = made(b, "after the first", DT_BOOL, shape, left);
    tensor_id to = made(b, "after the last", DT_BOOL, shape, right);
    to = made(b, "up to the last", DT_BOOL, shape, to);
    const tensor_id both[] = { from, to };
    const tensor_id in = build_tensor(b, "in the window", DT_BOOL, shape);
    op_result(b, build_op(b, OP_MUL, "in the window", both, 2), in);
    return made(b, "outside the window", DT_BOOL, shape, in);
}

/* get_full_mask (utils.py): distances of queries and keys against a window, the
 * whole sequence too. With padding it starts at the end of each sequence, whose
 * length is a sum: int64. All of it lives until the mask is made. */
static tensor_id full_mask(struct builder *b, bool padded)
{
    const struct shape square = SHAPE(b->sq, b->s);
    const struct shape every = SHAPE(b->micro, b->sq, b->s);
    const struct shape shape = padded ? every : square;
    const enum dtype dtype = padded ? DT_INT64 : DT_INT32;
    tensor_id held[OP_IN_MAX];
    unsigned n = 0;
    if (padded) {
        held[0] = made(b, "padding", DT_BOOL, &shape, b->ids);
        held[1] = made(b, "no padding", DT_BOOL, &shape, held[0]);
        n = 2;
    }
    const tensor_id apart = made(b, "distance", DT_INT32, &square, b->ids);
    const tensor_id left = made(b, "from the first", dtype, &shape, apart);
    const tensor_id right = made(b, "from the last", dtype, &shape, apart);
    const tensor_id out = outside(b, &shape, left, right);
    const tensor_id mask = made(b, "attention mask", DT_BOOL, &shape, out);
    held[n++] = apart;
    held[n++] = left;
    held[n++] = right;
    held[n++] = out;
    build_op(b, OP_RELEASE, "attention mask", held, n);
    return mask;
}

/* Keys and values are repeated for grouped queries. */
static void repeat(struct builder *b, tensor_id qkv[3])
{
    const struct shape all = SHAPE(b->t, b->A);
    for (unsigned i = 1; i < 3 && b->kv.n != b->a.n; i++)
        qkv[i] = build_copy_as(b, "repeat", qkv[i], &all);
}

/* baddbmm takes an empty result as its first operand. */
static tensor_id scores_of(struct builder *b, tensor_id q, tensor_id k)
{
    const struct shape shape = shape_scores(b);
    const tensor_id y = build_matmul(b, "scores", q, k, &shape);
    const enum dtype dtype = tensor_of(b, y)->dtype;
    op_byproduct(&b->p->op[b->p->n_ops - 1],
                 build_tensor(b, "empty scores", dtype, &shape));
    return y;
}

/* The rows of padding are zeroed after the softmax, which keeps the mask; a
 * causal one is kept by nobody. Raw scores are a local variable. */
tensor_id megatron_unfused(struct builder *b, tensor_id qkv[3])
{
    const struct shape rows = SHAPE(b->t, b->O);
    const struct shape heads = SHAPE(b->micro, b->a, b->sq, b->d);
    const bool padded = b->attends_all;
    const tensor_id mask = full_mask(b, padded);
    repeat(b, qkv);
    const tensor_id q = build_view(b, "heads", qkv[0], &heads);
    b->core_attention = true;
    const tensor_id scores = scores_of(b, q, qkv[1]);
    /* TE's kernel for 16 bits (softmax.py) */
    tensor_id p =
        build_unary(b, b->compute == DT_FP32 ? OP_SOFTMAX : OP_MASKED_SOFTMAX,
                    "masked softmax", scores);
    if (padded)
        p = build_where(b, "rows of padding", mask, p);
    p = build_dropout(b, "attention dropout", p, b->run->attention_dropout);
    tensor_id context = build_matmul(b, "context", p, qkv[2], &rows);
    b->core_attention = false;
    context = build_copy(b, "context", context);
    const tensor_id held[] = { scores, mask };
    build_op(b, OP_RELEASE, "scores", held, 2);
    return context;
}
