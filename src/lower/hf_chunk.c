/*
 * Owns the two autograd functions that go over a sequence in chunks: Mamba-2's
 * (state-spaces/mamba 2.3, ops/triton/ssd_combined.py) and the gated delta
 * rule's (fla-org/flash-linear-attention 0.5, ops/gated_delta_rule/chunk.py).
 * Refuses to know the layers around them. [docs/method.md eq. scan]
 */
#include "lower/hf_scan.h"

#include "base/banned.h"

enum {
    DELTA_CHUNK = 64, /* chunk_size of chunk_gated_delta_rule */
    DELTA_TILE = 64,  /* of keys, below Hopper (fla/ops/common/chunk_o.py) */
    SMS = 132         /* of an H100: partial sums are made for each (mamba_ssm/
                         ops/triton/layernorm_gated.py, ssd_chunk_state.py) */
};

/* ---- Mamba-2 ---- */

/* Sizes in bytes of what the kernels make, of one layer. */
struct chunked {
    uint64_t rows;    /* b*s*D */
    uint64_t conv;    /* b*s*(D+2*G*N) */
    uint64_t steps;   /* b*s*H */
    uint64_t decays;  /* fp32 [b, H, chunks, Q] */
    uint64_t states;  /* fp32 [b, chunks, H, P, N] */
    uint64_t final;   /* fp32 [b, H, P, N] */
    uint64_t scores;  /* fp32 [b, chunks, G, Q, Q] */
    uint64_t input;   /* fp32 [b, s, G, N]: B, C */
    uint64_t splits;  /* of a group's heads, so that each SM has one */
    uint64_t e;       /* bytes of an element */
    uint64_t per_sum; /* fp32 [b, chunks, H] */
    bool aligned;     /* rows of the projection are: no copies */
};

static struct chunked chunked_sizes(struct builder *b, const struct ssm_dims *d,
                                    tensor_id zxbcdt)
{
    const struct ssm *m = &b->spec->ssm;
    const uint64_t t = b->t.n, n = d->chunks.n, micro = b->micro.n;
    const struct tensor *in = tensor_of(b, zxbcdt);
    const uint64_t width = in->dim[in->rank - 1].n;
    const uint64_t ratio = m->heads / m->groups;
    const uint64_t busy = div_up(BYTES(b, micro, n, m->heads), SMS);
    const uint64_t each = busy < ratio ? busy : ratio;
    const uint64_t e = dtype_size(in->dtype);
    return (struct chunked){
        .rows = BYTES(b, t, m->inner, e),
        .conv = BYTES(b, t, d->conv.n, e),
        .steps = BYTES(b, t, m->heads, e),
        .decays = BYTES(b, micro, m->heads, n, m->chunk, 4),
        .states = BYTES(b, micro, n, m->heads, m->head_dim, m->state, 4),
        .final = BYTES(b, micro, m->heads, m->head_dim, m->state, 4),
        .scores = BYTES(b, micro, n, m->groups, m->chunk, m->chunk, 4),
        .input = BYTES(b, t, m->groups, m->state, 4),
        .per_sum = BYTES(b, micro, n, m->heads, 4),
        .splits = div_up(ratio, each > 0 ? each : 1),
        .e = e,
        .aligned = width % 8 == 0,
    };
}

/* _mamba_chunk_scan_combined_bwd, in its order. Of the three gradients that it
 * is given places for nothing is made. */
static void chunk_scan_backward(struct alive *a, struct builder *b,
                                const struct chunked *c)
{
    const struct ssm *m = &b->spec->ssm;
    const uint64_t start = a->now;
    const uint64_t low = c->states / 4 * c->e; /* states in x's dtype */
    const uint64_t blocks = div_up(m->head_dim * m->state, 64);
    alive_take(a, c->steps + 2 * c->decays + c->scores);
    alive_take(a, c->states);
    alive_take(a, c->states + c->final); /* passed on */
    alive_drop(a, c->states);
    alive_take(a, c->states); /* dstates */
    alive_take(a, low);
    alive_take(a, c->e < 4 ? low : 0); /* states, converted */
    alive_touch(a, BYTES(b, c->per_sum, blocks));
    alive_take(a, c->per_sum); /* ddA of each chunk */
    alive_drop(a, c->e < 4 ? 2 * c->states : c->states);
    alive_touch(a, BYTES(b, c->per_sum, div_up(m->chunk, 32)) + c->decays);
    alive_take(a, c->decays);          /* ddt */
    for (unsigned i = 0; i < 2; i++) { /* dB, dC, each with its ddA */
        alive_take(a, c->decays);
        alive_touch(a, BYTES(b, c->input, c->splits) + c->input);
        alive_take(a, c->input);
    }
    alive_touch(a, BYTES(b, c->scores, c->splits) + c->scores);
    alive_take(a, c->scores);
    alive_touch(a, 2 * c->decays); /* flipped, summed up */
    alive_take(a, c->decays);
    alive_touch(a, BYTES(b, c->decays, div_up(m->chunk, 32)) + c->decays);
    alive_take(a, 2 * c->decays); /* ddA, and a sum for it */
    alive_drop(a, a->now - start);
}

static uint64_t norm_partials(struct builder *b, const struct chunked *c)
{
    const struct ssm *m = &b->spec->ssm;
    const uint64_t size = m->inner / m->groups, most = 65536 / c->e;
    uint64_t block = 1;
    while (block < size)
        block *= 2;
    block = block < most ? block : most;
    const uint64_t warps = block / 256 < 1 ? 1 : block / 256;
    const uint64_t rows =
        div_up(SMS * div_up(4, warps < 8 ? warps : 8), m->groups);
    return BYTES(b, rows, m->inner, 4);
}

static uint64_t combined_backward(struct builder *b, const struct chunked *c,
                                  tensor_id zxbcdt,
                                  const struct ssm_combined *in)
{
    struct alive a = { .b = b };
    alive_take(&a, c->rows); /* out_recompute */
    if (!c->aligned)
        alive_take(&a, c->conv);
    alive_take(&a, c->conv); /* conv1d, again */
    if (!c->aligned)
        alive_drop(&a, c->conv);
    alive_take(&a, hf_size(b, zxbcdt));
    alive_take(&a, c->conv); /* dxBC */
    alive_take(&a, c->rows); /* through the output's product */
    alive_take(&a, c->rows); /* through the norm */
    alive_take(&a, norm_partials(b, c));
    if (in->norm != TENSOR_NONE)
        alive_touch(&a, 2 * tensor_of(b, in->norm)->elems * 4);
    alive_drop(&a, norm_partials(b, c));
    alive_take(&a, hf_size(b, in->norm));
    chunk_scan_backward(&a, b, c);
    alive_take(&a, BYTES(b, tensor_of(b, in->out_proj)->elems, c->e));
    alive_take(&a, hf_size(b, in->out_bias));
    if (!c->aligned)
        alive_take(&a, 2 * c->conv);
    alive_conv_weights(&a, &in->conv);
    return a.most;
}

/* The recurrence, and in the other convention the kernels' products with whole
 * squares of a chunk. */
static void combined_flops(const struct builder *b, const struct ssm_dims *d,
                           struct op *op, double products)
{
    const struct ssm *m = &b->spec->ssm;
    const double wide = (double)m->inner, n = (double)m->state;
    const double groups = (double)m->groups, q = (double)m->chunk;
    const double t = (double)b->t.n;
    op->flop_causal = products + hf_conv_flops(b, d) + hf_scan_flops(b, d);
    op->flop_full = products + hf_conv_flops(b, d)
                    + 2 * t * (q * (groups * n + wide) + 2 * wide * n);
}

tensor_id hf_mamba2_combined(struct builder *b, const struct ssm_dims *d,
                             tensor_id zxbcdt, const struct ssm_combined *in)
{
    const struct ssm *m = &b->spec->ssm;
    const struct dim q = DIM("Q", m->chunk);
    const struct shape wide = SHAPE(b->t, d->conv),
                       rows = SHAPE(b->t, d->inner);
    const struct shape decays = SHAPE(b->micro, d->heads, d->chunks, q);
    const struct shape states =
        SHAPE(DIM("b*chunks", BYTES(b, b->micro.n, d->chunks.n)), d->heads,
              d->width, d->state);
    const struct shape final = SHAPE(b->micro, d->heads, d->width, d->state);
    const struct shape scores = SHAPE(
        DIM("b*chunks", BYTES(b, b->micro.n, d->chunks.n)), d->groups, q, q);
    const struct shape norm = SHAPE(d->groups, b->t), out = SHAPE(b->t, b->h);
    const enum dtype dtype = tensor_of(b, zxbcdt)->dtype;
    const struct chunked c = chunked_sizes(b, d, zxbcdt);

    struct op *op = hf_inside(b, "conv1d", zxbcdt);
    const tensor_id conv =
        hf_temporary(op, build_tensor(b, "conv1d", dtype, &wide));
    if (!c.aligned)
        (void)hf_temporary(op, build_tensor(b, "contiguous", dtype, &wide));
    op = hf_inside(b, "chunk states", conv);
    const tensor_id dt =
        hf_temporary(op, build_tensor(b, "dt", DT_FP32, &decays));
    const tensor_id sum =
        hf_temporary(op, build_tensor(b, "dA", DT_FP32, &decays));
    (void)hf_temporary(op, build_tensor(b, "states", DT_FP32, &states));
    const tensor_id passed =
        hf_temporary(op, build_tensor(b, "states", dtype, &states));
    const tensor_id last =
        hf_temporary(op, build_tensor(b, "last states", DT_FP32, &final));
    op = hf_inside(b, "chunk scan", conv);
    (void)hf_temporary(op, build_tensor(b, "scores", DT_FP32, &scores));
    const tensor_id scan =
        hf_temporary(op, build_tensor(b, "scan", dtype, &rows));
    const tensor_id all[] = {
        zxbcdt,   in->conv.weight, in->conv.bias, in->dt_bias, in->A, in->D,
        in->norm, in->out_proj,    in->out_bias,  scan,        conv,  dt,
        sum,      passed,          last
    };
    op = build_op(b, OP_FUNCTION, "mamba_split_conv1d_scan_combined", all, 15);
    op_result(b, op, build_tensor(b, "out_proj", dtype, &out));
    const tensor_id y = op->out[0];
    (void)hf_temporary(op, build_tensor(b, "scan normed", dtype, &rows));
    hf_keep(b, hf_temporary(op, build_tensor(b, "rstd", DT_FP32, &norm)));
    hf_keep(b, zxbcdt);
    hf_keep(b, scan);
    hf_keep(b, in->A);
    hf_keep(b, hf_low(b, op, in->out_proj));
    hf_keep(b, hf_low(b, op, in->out_bias));
    hf_finish(b, op, combined_backward(b, &c, zxbcdt, in));
    combined_flops(b, d, op,
                   2.0 * (double)b->t.n
                       * (double)tensor_of(b, in->out_proj)->elems);
    return y;
}

/* ---- the gated delta rule ---- */

/* The state's decay and the three products with it: Megatron-LM's count
 * (training.py, gdn_layer_flops); and the kernels' products with chunks. */
static void delta_flops(const struct builder *b, struct op *op)
{
    const struct ssm *m = &b->spec->ssm;
    const double k = (double)m->state, v = (double)m->head_dim, q = DELTA_CHUNK;
    const double each = (double)b->t.n * (double)m->heads;
    op->flop_causal = each * 8 * k * v;
    op->flop_full = each * (6 * q * k + 4 * q * v + 6 * k * v);
}

/* chunk_gated_delta_rule_bwd, in its order. */
static uint64_t delta_backward(struct builder *b, const struct ssm_dims *d,
                               const struct ssm_delta *in)
{
    const struct ssm *m = &b->spec->ssm;
    const uint64_t t = b->t.n;
    const uint64_t e = dtype_size(tensor_of(b, in->v)->dtype);
    const uint64_t keys =
        BYTES(b, t, m->heads, m->state, e); /* of value heads */
    const uint64_t own = BYTES(b, t, m->groups, m->state, e);
    const uint64_t values = hf_size(b, in->v), gates = hf_size(b, in->g);
    const uint64_t states =
        BYTES(b, b->micro.n, d->chunks.n, m->heads, m->state, m->head_dim, e);
    const bool grouped = m->groups != m->heads;
    struct alive a = { .b = b };
    alive_take(&a, keys + values);   /* w, u */
    alive_take(&a, states + values); /* h, v_new */
    alive_take(&a, values);          /* dv */
    alive_take(&a, states + values); /* dh, dv again */
    alive_drop(&a, values);
    alive_take(&a, 3 * keys); /* dq, dk, dw */
    alive_take(&a, BYTES(b, gates, div_up(m->state, DELTA_TILE)));
    for (unsigned i = 0; i < 2 && grouped; i++) {
        alive_take(&a, own);
        alive_drop(&a, keys);
    }
    alive_take(&a, gates);
    alive_drop(&a, BYTES(b, gates, div_up(m->state, DELTA_TILE)));
    alive_take(&a, keys + values + gates + hf_size(b, in->beta));
    if (grouped) {
        alive_take(&a, own);
        alive_drop(&a, keys);
    }
    alive_drop(&a, values);
    alive_take(&a, gates); /* summed up */
    return a.most;
}

tensor_id hf_delta_rule(struct builder *b, const struct ssm_dims *d,
                        const struct ssm_delta *in)
{
    const struct dim q = DIM("64", DELTA_CHUNK);
    const enum dtype dtype = tensor_of(b, in->v)->dtype;
    const struct shape rows = SHAPE(b->t, d->heads, d->width);
    const struct shape keys = SHAPE(b->t, d->groups, d->state);
    const struct shape wide = SHAPE(b->t, d->heads, d->state);
    const struct shape each = SHAPE(b->t, d->groups);
    const struct shape gates = SHAPE(b->t, d->heads);
    const struct shape square = SHAPE(b->t, d->heads, q);
    const struct shape states =
        SHAPE(DIM("b*chunks", BYTES(b, b->micro.n, d->chunks.n)), d->heads,
              d->state, d->width);
    const tensor_id all[] = { in->q, in->k, in->v, in->g, in->beta };
    struct op *op = build_op(b, OP_FUNCTION, "chunk_gated_delta_rule", all, 5);
    op_result(b, op, build_tensor(b, "delta rule", dtype, &rows));
    const tensor_id y = op->out[0];
    for (unsigned i = 0; i < 2; i++) { /* q, k: contiguous, and of length one */
        (void)hf_temporary(op, build_tensor(b, "contiguous", dtype, &keys));
        hf_keep(b, hf_temporary(op, build_tensor(b, "normed", dtype, &keys)));
        hf_keep(b, hf_temporary(op, build_tensor(b, "rstd", DT_FP32, &each)));
    }
    hf_keep(b, hf_temporary(op, build_tensor(b, "v", dtype, &rows)));
    hf_keep(b,
            hf_temporary(op, build_tensor(b, "gates summed", DT_FP32, &gates)));
    hf_keep(b, hf_temporary(op, build_tensor(b, "A", dtype, &square)));
    hf_keep(b, in->beta);
    (void)hf_temporary(op, build_tensor(b, "w", dtype, &wide));
    (void)hf_temporary(op, build_tensor(b, "u", dtype, &rows));
    (void)hf_temporary(op, build_tensor(b, "h", dtype, &states));
    (void)hf_temporary(op, build_tensor(b, "v_new", dtype, &rows));
    hf_finish(b, op, delta_backward(b, d, in));
    delta_flops(b, op);
    return y;
}
