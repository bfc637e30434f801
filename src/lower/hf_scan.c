/*
 * Owns the autograd functions that transformers' state-space layers call:
 * state-spaces/mamba 2.3, Dao-AILab/causal-conv1d 1.6, fla-org/flash-linear-
 * attention 0.5. What they keep is what they pass to save_for_backward; what
 * their backward holds for a moment is followed here allocation by allocation.
 * Refuses to know the layers around them. [docs/method.md eq. scan]
 */
#include "lower/hf_scan.h"

#include "base/banned.h"

enum {
    SCAN_CHUNK = 2048 /* tokens a block goes over (csrc/selective_scan/
                         selective_scan.cpp) */
};

/* ---- what is alive in a backward ---- */

uint64_t hf_bytes(struct builder *b, struct count c)
{
    b->over = b->over || c.over;
    return c.v;
}

void alive_take(struct alive *a, uint64_t bytes)
{
    a->now = hf_bytes(a->b, count_add(count_of(a->now), count_of(bytes)));
    a->most = max_u64(a->most, a->now);
}

void alive_drop(struct alive *a, uint64_t bytes)
{
    a->now -= bytes < a->now ? bytes : a->now;
}

void alive_touch(struct alive *a, uint64_t bytes)
{
    alive_take(a, bytes);
    alive_drop(a, bytes);
}

uint64_t hf_size(const struct builder *b, tensor_id id)
{
    return id == TENSOR_NONE ? 0 : tensor_of(b, id)->bytes;
}

void hf_finish(const struct builder *b, struct op *op, uint64_t most)
{
    uint64_t given = 0;
    for (unsigned i = 0; i < op->n_in; i++) {
        const struct tensor *t = tensor_of(b, op->in[i]);
        const bool param = t->role == ROLE_PARAM;
        if (param ? t->trainable : t->needs_grad)
            given += t->bytes;
    }
    op->back_bytes = most > given ? most - given : 0;
}

/* ---- the pieces of a function ---- */

struct op *hf_inside(struct builder *b, const char *name, tensor_id x)
{
    return build_op(b, OP_COPY, name, &x, 1);
}

tensor_id hf_temporary(struct op *op, tensor_id id)
{
    op_byproduct(op, id);
    return id;
}

void hf_keep(struct builder *b, tensor_id id)
{
    struct op *op = &b->p->op[b->p->n_ops - 1];
    if (id == TENSOR_NONE)
        return;
    for (unsigned i = 0; i < op->n_in; i++)
        if (op->in[i] == id)
            op->keep_in |= UINT32_C(1) << i;
    for (unsigned i = 0; i < op->n_out; i++)
        if (op->out[i] == id)
            op->keep_out |= UINT32_C(1) << i;
}

tensor_id hf_low(struct builder *b, struct op *op, tensor_id weight)
{
    if (weight == TENSOR_NONE || !b->autocast
        || tensor_of(b, weight)->dtype == b->compute)
        return weight;
    const struct shape shape = shape_of(b, weight);
    return hf_temporary(op, build_tensor(b, "autocast", b->compute, &shape));
}

/* ---- causal_conv1d ---- */

void alive_conv_weights(struct alive *a, const struct ssm_conv *conv)
{
    const tensor_id each[] = { conv->weight, conv->bias };
    for (unsigned i = 0; i < 2; i++) {
        if (each[i] == TENSOR_NONE)
            continue;
        const struct tensor *t = tensor_of(a->b, each[i]);
        alive_take(a, t->elems * dtype_size(DT_FP32));
        if (t->dtype != DT_FP32)
            alive_take(a, t->bytes);
    }
}

double hf_conv_flops(const struct builder *b, const struct ssm_dims *d)
{
    return 2.0 * (double)b->t.n * (double)d->conv.n * (double)d->taps.n;
}

tensor_id hf_causal_conv(struct builder *b, const struct ssm_dims *d,
                         tensor_id x, const struct ssm_conv *conv)
{
    const struct shape shape = shape_of(b, x);
    const tensor_id y =
        build_tensor(b, "conv1d", tensor_of(b, x)->dtype, &shape);
    const tensor_id in[] = { x, conv->weight, conv->bias };
    struct op *op = build_op(b, OP_FUNCTION, "causal_conv1d_fn", in, 3);
    op_result(b, op, y);
    hf_keep(b, x);
    struct alive a = { .b = b };
    alive_take(&a, hf_size(b, x));
    alive_conv_weights(&a, conv);
    hf_finish(b, op, a.most);
    op->flop_full = op->flop_causal = hf_conv_flops(b, d);
    return y;
}

/* ---- Mamba-1 ---- */

/* A multiply-add for each state's decay and for each of its inputs, and one for
 * the output: Megatron-LM's count (training.py, mamba_layer_flops). */
double hf_scan_flops(const struct builder *b, const struct ssm_dims *d)
{
    return 7.0 * (double)b->t.n * (double)d->inner.n * (double)d->state.n;
}

/* fp32 states at the chunks' ends. */
static struct shape scan_states(struct builder *b, const struct ssm_dims *d)
{
    return SHAPE(b->micro, d->inner, DIM("s/2048", div_up(b->sq.n, SCAN_CHUNK)),
                 DIM("2*N", build_product(b, 2, d->state.n)));
}

/* B's and C's gradients are summed in fp32. */
static void scan_backward(struct alive *a, const struct builder *b,
                          const struct ssm_scan *in)
{
    const tensor_id same[] = { in->u, in->dt, in->A, in->D, in->dt_bias };
    for (unsigned i = 0; i < 5; i++)
        alive_take(a, hf_size(b, same[i]));
    uint64_t fp32 = 0;
    const tensor_id across[] = { in->B, in->C };
    for (unsigned i = 0; i < 2; i++) {
        const struct tensor *t = tensor_of(b, across[i]);
        alive_take(a, t->elems * dtype_size(DT_FP32));
        fp32 += t->dtype != DT_FP32 ? t->elems * dtype_size(DT_FP32) : 0;
    }
    for (unsigned i = 0; i < 2 && fp32 > 0; i++)
        alive_take(a, hf_size(b, across[i]));
    alive_drop(a, fp32);
}

static tensor_id across(struct builder *b, struct op *op, const char *name,
                        tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    return hf_temporary(op,
                        build_tensor(b, name, tensor_of(b, x)->dtype, &shape));
}

tensor_id hf_selective_scan(struct builder *b, const struct ssm_dims *d,
                            const struct ssm_scan *in)
{
    const tensor_id all[] = { in->u, in->dt, in->A, in->B,
                              in->C, in->D,  in->z, in->dt_bias };
    const struct shape shape = shape_of(b, in->u), x = scan_states(b, d);
    const enum dtype dtype = tensor_of(b, in->u)->dtype;
    const tensor_id y = build_tensor(b, "scan", dtype, &shape);
    struct op *op = build_op(b, OP_FUNCTION, "selective_scan_fn", all, 8);
    op_result(b, op, y);
    const tensor_id copied[] = { in->u, in->dt, in->B, in->C, in->z };
    for (unsigned i = 0; i < 5; i++)
        hf_keep(b, across(b, op, "contiguous", copied[i]));
    hf_keep(b, hf_temporary(op, build_tensor(b, "scan states", DT_FP32, &x)));
    hf_keep(b, hf_temporary(
                   op, build_tensor(b, "scan before the gate", dtype, &shape)));
    hf_keep(b, in->A);
    hf_keep(b, in->D);
    hf_keep(b, in->dt_bias);
    struct alive a = { .b = b };
    alive_take(&a, hf_size(b, y)); /* the gradient, made contiguous */
    alive_take(&a, hf_size(b, in->z));
    scan_backward(&a, b, in);
    hf_finish(b, op, a.most);
    op->flop_full = op->flop_causal = hf_scan_flops(b, d);
    return y;
}

/* MambaInnerFn.backward, in its order; of one sequence the transposed operands
 * of its products are views. */
static uint64_t inner_backward(struct builder *b, tensor_id xz,
                               const struct ssm_inner *in,
                               const struct ssm_scan *s, uint64_t x_dbl)
{
    const uint64_t wide = hf_size(b, s->u);
    const bool copies = b->micro.n > 1;
    const uint64_t e = dtype_size(tensor_of(b, xz)->dtype);
    const tensor_id products[] = { in->out_proj, in->dt_proj, in->x_proj };
    struct alive a = { .b = b };
    alive_take(&a, 2 * wide);       /* conv1d_out, delta: made again */
    alive_take(&a, hf_size(b, xz)); /* dxz */
    alive_take(&a, wide);           /* dout_y */
    alive_take(&a, wide);           /* out_z */
    scan_backward(&a, b, s);        /* dconv1d_out, ddelta, dA, dB, dC, ... */
    alive_take(&a, tensor_of(b, products[0])->elems * e);
    alive_take(&a, x_dbl);
    alive_touch(&a, hf_size(b, s->B)); /* dB in order, then dC */
    alive_drop(&a, hf_size(b, s->B) + hf_size(b, s->C));
    alive_take(&a, tensor_of(b, products[1])->elems * e);
    alive_touch(&a, x_dbl); /* of which the time step's part */
    if (copies)
        alive_touch(&a, wide); /* dconv1d_out, in order */
    if (copies)
        alive_take(&a, wide); /* conv1d_out, in order */
    alive_take(&a, tensor_of(b, products[2])->elems * e);
    if (copies)
        alive_drop(&a, wide);
    alive_conv_weights(&a, &in->conv);
    return a.most;
}

tensor_id hf_mamba_inner(struct builder *b, const struct ssm_dims *d,
                         tensor_id xz, const struct ssm_inner *in)
{
    const struct shape rows = SHAPE(b->t, d->inner);
    const struct shape dbl = SHAPE(b->t, d->x_dbl);
    const struct shape states = SHAPE(b->t, d->state);
    const struct shape x = scan_states(b, d), out = SHAPE(b->t, b->h);
    const enum dtype dtype = tensor_of(b, xz)->dtype;
    struct op *op = hf_inside(b, "mamba_inner_fn", xz);
    struct ssm_scan s = { .A = in->A, .D = in->D, .dt_bias = in->dt_bias };
    s.u = hf_temporary(op, build_tensor(b, "conv1d", dtype, &rows));
    const tensor_id x_dbl =
        hf_temporary(op, build_tensor(b, "x_dbl", dtype, &dbl));
    s.dt = hf_temporary(op, build_tensor(b, "delta", dtype, &rows));
    s.B = hf_temporary(op, build_tensor(b, "B", dtype, &states));
    s.C = hf_temporary(op, build_tensor(b, "C", dtype, &states));
    const tensor_id scan =
        hf_temporary(op, build_tensor(b, "scan", dtype, &rows));
    const tensor_id ends =
        hf_temporary(op, build_tensor(b, "scan states", DT_FP32, &x));
    s.z = hf_temporary(op, build_tensor(b, "scan gated", dtype, &rows));
    const tensor_id all[] = { xz,
                              in->conv.weight,
                              in->conv.bias,
                              in->x_proj,
                              in->dt_proj,
                              in->out_proj,
                              in->out_bias,
                              in->A,
                              in->D,
                              in->dt_bias,
                              x_dbl,
                              s.B,
                              s.C,
                              scan,
                              ends,
                              s.z };
    op = build_op(b, OP_FUNCTION, "mamba_inner_fn", all, 16);
    op_result(b, op, build_tensor(b, "out_proj", dtype, &out));
    const tensor_id y = op->out[0];
    const tensor_id kept[] = { xz,  in->A, in->D, in->dt_bias, x_dbl,
                               s.B, s.C,   scan,  ends };
    for (unsigned i = 0; i < 9; i++)
        hf_keep(b, kept[i]);
    const tensor_id weights[] = { in->x_proj, in->dt_proj, in->out_proj };
    double products = 0;
    for (unsigned i = 0; i < 3; i++) {
        hf_keep(b, hf_low(b, op, weights[i]));
        products +=
            2.0 * (double)b->t.n * (double)tensor_of(b, weights[i])->elems;
    }
    if (b->micro.n > 1)
        (void)hf_temporary(op, build_tensor(b, "scan in order", dtype, &rows));
    op = &b->p->op[b->p->n_ops - 1];
    hf_finish(b, op, inner_backward(b, xz, in, &s, hf_size(b, x_dbl)));
    op->flop_full = op->flop_causal =
        products + hf_conv_flops(b, d) + hf_scan_flops(b, d);
    return y;
}
