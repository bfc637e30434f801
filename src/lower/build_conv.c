/*
 * Owns the operations of networks of convolutions: convolution, batch norm,
 * pooling, with the dtypes that autocast gives them. Refuses to know where a
 * network has them. What cuDNN's kernels hold for a moment is not known.
 */
#include "lower/build_conv.h"

#include "lower/build_private.h"

#include "base/banned.h"

static struct shape shape_of_picture(const struct builder *b,
                                     const struct picture *x)
{
    return SHAPE(b->micro, DIM("c", x->channels), DIM("h", x->height),
                 DIM("w", x->width));
}

/* Autocast runs convolutions in 16 bits; their weights are cast and cached. */
struct picture build_conv(struct builder *b, const struct picture *x,
                          const struct conv *c)
{
    struct picture y = { .channels = c->out,
                         .height = c->height,
                         .width = c->width };
    const uint64_t taps = build_product(b, c->kernel[0], c->kernel[1]);
    const uint64_t inner = build_product(b, x->channels / c->groups, taps);
    const tensor_id weight =
        build_param(b, &(struct param){ .name = c->name,
                                        .group = PG_CONV,
                                        .rows = DIM("c_out", c->out),
                                        .cols = DIM("c_in*k*k", inner),
                                        .last = { c->kernel[0], c->kernel[1] },
                                        .matmul = true });
    tensor_id bias = TENSOR_NONE;
    if (c->bias)
        bias = build_bias(b, c->name, PG_CONV, DIM("c_out", c->out), 0);
    b->p->tensor[weight].low = build_sends_low(b);
    if (bias != TENSOR_NONE)
        b->p->tensor[bias].low = build_sends_low(b);
    const tensor_id in[] = { build_autocast(b, c->name, x->x),
                             build_autocast(b, c->name, weight),
                             c->bias ? build_autocast(b, "bias", bias)
                                     : TENSOR_NONE };
    const struct shape shape = shape_of_picture(b, &y);
    y.x = build_tensor(b, c->name, tensor_of(b, in[1])->dtype, &shape);
    struct op *op = build_op(b, OP_CONV, c->name, in, 3);
    op_result(b, op, y.x);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, y.x)->elems * (double)inner;
    return y;
}

struct picture build_batch_norm(struct builder *b, const char *name,
                                struct picture x)
{
    const struct dim c = DIM("c", x.channels);
    const struct shape each = SHAPE(c);
    const tensor_id weight = build_norm_weight(b, name, c);
    const tensor_id bias = build_bias(b, name, PG_NORM, c, 0);
    build_state(b, "running_mean", DT_FP32, &each);
    build_state(b, "running_var", DT_FP32, &each);
    build_state(b, "num_batches_tracked", DT_INT64, &SHAPE(b->one));
    const tensor_id y = build_like(b, name, x.x);
    const tensor_id mean = build_tensor(b, "mean", DT_FP32, &each);
    const tensor_id rstd = build_tensor(b, "rstd", DT_FP32, &each);
    const tensor_id in[] = { x.x, weight, bias };
    struct op *op = build_op(b, OP_BATCH_NORM, name, in, 3);
    op_result(b, op, y);
    op_byproduct(op, mean);
    op_byproduct(op, rstd);
    x.x = y;
    return x;
}

void build_max_pool(struct builder *b, const char *name,
                    const struct picture *x, struct picture *y)
{
    const struct shape shape = shape_of_picture(b, y);
    y->x = build_tensor(b, name, tensor_of(b, x->x)->dtype, &shape);
    const tensor_id places = build_tensor(b, "places", DT_INT64, &shape);
    struct op *op = build_op(b, OP_MAX_POOL, name, &x->x, 1);
    op_result(b, op, y->x);
    op_byproduct(op, places);
}

void build_avg_pool(struct builder *b, const char *name,
                    const struct picture *x, struct picture *y)
{
    const struct shape shape = shape_of_picture(b, y);
    y->x = build_tensor(b, name, tensor_of(b, x->x)->dtype, &shape);
    op_result(b, build_op(b, OP_AVG_POOL, name, &x->x, 1), y->x);
}

/* adaptive_avg_pool2d to one number is a mean
 * (aten/src/ATen/native/AdaptiveAveragePooling.cpp). */
void build_global_pool(struct builder *b, const char *name, struct picture *x)
{
    const struct dim c = DIM("c", x->channels);
    const struct shape flat =
        SHAPE(b->micro, c, DIM("h*w", build_product(b, x->height, x->width)));
    x->x = build_view(b, "pixels", x->x, &flat);
    x->x = build_mean(b, name, x->x);
    x->height = x->width = 1;
}
