/*
 * Owns the operations without matrix products: elementwise, casts, views,
 * activation functions, norms; named as in PyTorch, with the dtypes that it
 * promotes and autocasts to. Refuses to know where a model has them, and what
 * they keep (save_rule.c does).
 */
#include "lower/build_private.h"

#include "base/banned.h"

/* ---- elementwise ---- */

static int width_rank(enum dtype t)
{
    if (t == DT_FP32)
        return 2;
    return t == DT_BF16 || t == DT_FP16 ? 1 : 0;
}

/* The wider of two dtypes, as PyTorch promotes them. */
static enum dtype promote(enum dtype x, enum dtype y)
{
    return width_rank(y) > width_rank(x) ? y : x;
}

tensor_id build_unary(struct builder *b, enum op_kind kind, const char *name,
                      tensor_id x)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    return build_one_result(b, kind, name, in, build_like(b, name, x));
}

tensor_id build_unary_in_place(struct builder *b, enum op_kind kind,
                               const char *name, tensor_id x)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    const tensor_id y = build_like(b, name, x);
    b->p->tensor[y].storage = tensor_of(b, x)->storage;
    return build_one_result(b, kind, name, in, y);
}

tensor_id build_binary(struct builder *b, enum op_kind kind, const char *name,
                       tensor_id x, tensor_id y)
{
    const tensor_id in[] = { x, y };
    const struct tensor *tx = tensor_of(b, x), *ty = tensor_of(b, y);
    const enum dtype dtype = promote(tx->dtype, ty->dtype);
    const tensor_id larger = ty->elems > tx->elems ? y : x;
    return build_one_result(b, kind, name, in,
                            build_in_shape_of(b, name, dtype, larger));
}

tensor_id build_binary_in_place(struct builder *b, enum op_kind kind,
                                const char *name, tensor_id x, tensor_id y)
{
    const tensor_id in[] = { x, y };
    const struct shape shape = shape_of(b, x);
    return build_one_result(b, kind, name, in, build_alias(b, name, x, &shape));
}

tensor_id build_add(struct builder *b, const char *name, tensor_id x,
                    tensor_id y)
{
    return build_binary(b, OP_ADD, name, x, y);
}

tensor_id build_mul(struct builder *b, const char *name, tensor_id x,
                    tensor_id y)
{
    return build_binary(b, OP_MUL, name, x, y);
}

tensor_id build_mul_as(struct builder *b, const char *name, tensor_id x,
                       tensor_id y, const struct shape *shape)
{
    const tensor_id in[] = { x, y };
    const enum dtype dtype =
        promote(tensor_of(b, x)->dtype, tensor_of(b, y)->dtype);
    return build_one_result(b, OP_MUL, name, in,
                            build_tensor(b, name, dtype, shape));
}

tensor_id build_scale(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_SCALE, name, x);
}

tensor_id build_neg(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_NEG, name, x);
}

/* aten/src/ATen/autocast_mode.h lists them. */
tensor_id build_autocast_up(struct builder *b, tensor_id x)
{
    return b->autocast ? build_cast(b, "autocast", x, DT_FP32) : x;
}

tensor_id build_pow(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_POW, name, build_autocast_up(b, x));
}

tensor_id build_rsqrt(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_RSQRT, name, build_autocast_up(b, x));
}

tensor_id build_mean(struct builder *b, const char *name, tensor_id x)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    const struct shape shape = shape_last(b, x, b->one);
    const enum dtype dtype = tensor_of(b, x)->dtype;
    return build_one_result(b, OP_MEAN, name, in,
                            build_tensor(b, name, dtype, &shape));
}

tensor_id build_cast(struct builder *b, const char *name, tensor_id x,
                     enum dtype dtype)
{
    if (tensor_of(b, x)->dtype == dtype)
        return x;
    const tensor_id in[] = { x, TENSOR_NONE };
    return build_one_result(b, OP_CAST, name, in,
                            build_in_shape_of(b, name, dtype, x));
}

/* Autocast caches its copies of weights until the forward is over. */
static tensor_id cached_cast(const struct builder *b, tensor_id w)
{
    if (b->block == NULL || w < b->block->tensor_first
        || w + 1 == b->p->n_tensors)
        return TENSOR_NONE;
    for (uint32_t i = b->p->n_ops; i-- > b->block->op_first;) {
        const struct op *op = &b->p->op[i];
        if (op->kind == OP_CAST && op->in[0] == w)
            return op->out[0];
    }
    return TENSOR_NONE;
}

tensor_id build_autocast(struct builder *b, const char *name, tensor_id x)
{
    const struct tensor *t = tensor_of(b, x);
    if (!b->autocast || t->dtype == b->compute)
        return x;
    if (t->role == ROLE_PARAM) {
        const tensor_id cast = cached_cast(b, x);
        if (cast != TENSOR_NONE)
            return cast;
    }
    return build_cast(b, name, x, b->compute);
}

tensor_id build_copy(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_COPY, name, x);
}

tensor_id build_copy_as(struct builder *b, const char *name, tensor_id x,
                        const struct shape *shape)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    const enum dtype dtype = tensor_of(b, x)->dtype;
    return build_one_result(b, OP_COPY, name, in,
                            build_tensor(b, name, dtype, shape));
}

tensor_id build_view(struct builder *b, const char *name, tensor_id x,
                     const struct shape *shape)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    return build_one_result(b, OP_VIEW, name, in,
                            build_alias(b, name, x, shape));
}

void build_split(struct builder *b, const char *name, tensor_id x,
                 tensor_id *out, const struct shape *shapes, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        out[i] = build_alias(b, name, x, &shapes[i]);
    struct op *op = build_op(b, OP_VIEW, name, &x, 1);
    for (unsigned i = 0; i < n; i++)
        op_result(b, op, out[i]);
}

void build_slices(struct builder *b, const char *name, tensor_id x,
                  tensor_id *out, const struct shape *shapes, unsigned n)
{
    build_split(b, name, x, out, shapes, n);
    b->p->op[b->p->n_ops - 1].indexed = true;
}

tensor_id build_cat(struct builder *b, const char *name, tensor_id x,
                    tensor_id y, const struct shape *shape)
{
    const tensor_id in[] = { x, y };
    const enum dtype dtype =
        promote(tensor_of(b, x)->dtype, tensor_of(b, y)->dtype);
    return build_one_result(b, OP_CAT, name, in,
                            build_tensor(b, name, dtype, shape));
}

tensor_id build_cat3(struct builder *b, const char *name, const tensor_id x[3],
                     const struct shape *shape)
{
    const enum dtype dtype = tensor_of(b, x[0])->dtype;
    const tensor_id out = build_tensor(b, name, dtype, shape);
    op_result(b, build_op(b, OP_CAT, name, x, 3), out);
    return out;
}

tensor_id build_where(struct builder *b, const char *name, tensor_id mask,
                      tensor_id x)
{
    const tensor_id in[] = { x, mask };
    return build_one_result(b, OP_WHERE, name, in, build_like(b, name, x));
}

tensor_id build_dropout(struct builder *b, const char *name, tensor_id x,
                        double p)
{
    if (!(p > 0))
        return x;
    const struct shape shape = shape_of(b, x);
    const tensor_id out = build_like(b, name, x);
    const tensor_id mask = build_tensor(b, "dropout mask", DT_BOOL, &shape);
    struct op *op = build_op(b, OP_DROPOUT, name, &x, 1);
    op_result(b, op, out);
    op_byproduct(op, mask);
    return out;
}

tensor_id build_dropout_add(struct builder *b, const char *name, tensor_id x,
                            tensor_id residual, double p)
{
    if (!(p > 0))
        return build_add(b, name, residual, x);
    const struct shape shape = shape_of(b, x);
    const tensor_id out = build_like(b, name, residual);
    const tensor_id mask = build_tensor(b, "dropout mask", DT_BOOL, &shape);
    const tensor_id in[] = { x, residual };
    struct op *op = build_op(b, OP_DROPOUT_ADD, name, in, 2);
    op_result(b, op, out);
    op_byproduct(op, mask);
    return out;
}

/* ---- activations ---- */

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), transformers'
 * NewGELUActivation: five tensors of x's size are kept. */
static tensor_id gelu_new(struct builder *b, const char *name, tensor_id x)
{
    const tensor_id half = build_scale(b, "half x", x);
    const tensor_id cube = build_pow(b, "x cubed", x);
    const tensor_id scaled = build_scale(b, "cube scaled", cube);
    const tensor_id sum = build_add(b, "tanh sum", x, scaled);
    const tensor_id inner = build_scale(b, "tanh input", sum);
    const tensor_id tanh = build_unary(b, OP_TANH, "tanh", inner);
    const tensor_id plus = build_unary(b, OP_ADD, "1 + tanh", tanh);
    return build_mul(b, name, half, plus);
}

/* 0.5 x (1 + tanh(0.79788 x (1 + 0.044715 x x))), transformers'
 * FastGELUActivation. */
static tensor_id gelu_fast(struct builder *b, const char *name, tensor_id x)
{
    const tensor_id half = build_scale(b, "half x", x);
    const tensor_id outer = build_scale(b, "x scaled", x);
    const tensor_id small = build_scale(b, "x small", x);
    const tensor_id square = build_mul(b, "x squared", small, x);
    const tensor_id factor = build_unary(b, OP_ADD, "1 + square", square);
    const tensor_id inner = build_mul(b, "tanh input", outer, factor);
    const tensor_id tanh = build_unary(b, OP_TANH, "tanh", inner);
    const tensor_id plus = build_unary(b, OP_ADD, "1 + tanh", tanh);
    return build_mul(b, name, half, plus);
}

tensor_id build_activation(struct builder *b, const char *name,
                           enum activation act, tensor_id x)
{
    switch (act) {
    case ACT_SILU:
    case ACT_GEGELU: /* spelled out by hf_mlp.c */
    case ACT_GELU:
    case ACT_GELU_TANH: return build_unary(b, OP_ACTIVATION, name, x);
    case ACT_GELU_BLOOM: return build_unary(b, OP_PYTHON_GELU, name, x);
    case ACT_GELU_NEW: return gelu_new(b, name, x);
    case ACT_GELU_FAST: return gelu_fast(b, name, x);
    case ACT_GELU_QUICK:
        return build_mul(
            b, name, x,
            build_unary(b, OP_TANH, "sigmoid", build_scale(b, "x scaled", x)));
    case ACT_RELU: return build_unary(b, OP_RELU, name, x);
    case ACT_RELU2:
        return build_pow(b, name, build_unary(b, OP_RELU, "relu", x));
    }
    return x;
}

tensor_id build_swiglu(struct builder *b, const char *name, tensor_id gate,
                       tensor_id up, tensor_id probs)
{
    struct shape shape = shape_of(b, gate);
    if (up == TENSOR_NONE && shape.rank > 0) {
        struct dim *last = &shape.dim[shape.rank - 1];
        last->n /= 2;
        if (last->sym[0] == '2' && last->sym[1] == '*')
            last->sym += 2;
    }
    const tensor_id in[] = { gate, up, probs };
    const enum dtype dtype = tensor_of(b, gate)->dtype;
    const tensor_id out = build_tensor(b, name, dtype, &shape);
    op_result(b, build_op(b, OP_SWIGLU, name, in, 3), out);
    return out;
}

/* ---- norms ---- */

tensor_id build_layer_norm(struct builder *b, const char *name, tensor_id x,
                           tensor_id weight, tensor_id bias)
{
    x = build_autocast_up(b, x);
    if (weight != TENSOR_NONE) /* those of 16 bits: new ones, and kept */
        weight = build_autocast_up(b, weight);
    if (bias != TENSOR_NONE)
        bias = build_autocast_up(b, bias);
    const struct shape rows = shape_rows(b, x);
    const tensor_id out = build_like(b, name, x);
    const tensor_id mean = build_tensor(b, "mean", DT_FP32, &rows);
    const tensor_id rstd = build_tensor(b, "rstd", DT_FP32, &rows);
    const tensor_id in[] = { x, weight, bias };
    struct op *op = build_op(b, OP_LAYER_NORM, name, in, 3);
    op_result(b, op, out);
    op_byproduct(op, mean);
    op_byproduct(op, rstd);
    return out;
}

tensor_id build_rms_norm(struct builder *b, const char *name, tensor_id x,
                         tensor_id weight)
{
    const struct shape rows = shape_rows(b, x);
    const tensor_id out = build_like(b, name, x);
    const tensor_id rstd = build_tensor(b, "rstd", DT_FP32, &rows);
    const tensor_id in[] = { x, weight };
    struct op *op = build_op(b, OP_RMS_NORM, name, in, 2);
    op_result(b, op, out);
    op_byproduct(op, rstd);
    return out;
}

tensor_id build_rms_norm_written_out(struct builder *b, const char *name,
                                     tensor_id x, tensor_id weight)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    const tensor_id square = build_pow(b, "norm square", up);
    const tensor_id mean = build_mean(b, "variance", square);
    const tensor_id eps = build_unary(b, OP_ADD, "variance + eps", mean);
    const tensor_id root = build_rsqrt(b, "rsqrt", eps);
    const tensor_id unit = build_mul(b, "normalised", up, root);
    const tensor_id down = build_cast(b, "normalised", unit, dtype);
    return build_mul(b, name, weight, down);
}
