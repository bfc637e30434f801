/*
 * Owns transformers' state-space layers as they run without the packages'
 * kernels: the convolution, and Mamba's scan as a loop over the tokens
 * (mamba_selective_scan of models/mamba and models/jamba). Every step of the
 * loop keeps its state; here they are one tensor, so that a program is no
 * longer where the sequence is. Refuses to know the chunked scans of
 * Mamba-2 and the delta rule (hf_torch_chunk.c, hf_torch_delta.c).
 * [docs/method.md eq. loop]
 */
#include "lower/hf_torch.h"

#include "base/banned.h"

/* ---- what the loops have in common ---- */

tensor_id torch_pieces(struct builder *b, struct op *op, const char *name,
                       enum dtype dtype, const struct shape *shape)
{
    const tensor_id id = hf_temporary(op, build_tensor(b, name, dtype, shape));
    b->p->tensor[id].pieces = true;
    hf_keep(b, id);
    return id;
}

tensor_id torch_fp32(struct builder *b, const char *name, tensor_id x)
{
    return build_cast(b, name, x, DT_FP32);
}

/* x for a kernel that autocast runs in fp32: softplus. */
static tensor_id autocast_up(struct builder *b, tensor_id x)
{
    return b->autocast ? torch_fp32(b, "autocast", x) : x;
}

tensor_id torch_softplus(struct builder *b, tensor_id x)
{
    return build_unary(b, OP_ACTIVATION, "softplus", autocast_up(b, x));
}

/* F.conv1d over a sequence that is padded on both ends, then cut. Its weight is
 * a view there, so that autocast does not cache the copy of it. */
tensor_id torch_plain_conv(struct builder *b, const struct ssm_dims *d,
                           tensor_id x, const struct ssm_conv *conv)
{
    const struct shape rows = SHAPE(b->t, d->conv);
    const struct shape padded =
        SHAPE(b->micro, d->conv, DIM("s+k-1", b->sq.n + d->taps.n - 1));
    const struct shape all = shape_of(b, conv->weight);
    tensor_id weight = conv->weight, bias = conv->bias;
    x = build_cast(b, "x", x, tensor_of(b, weight)->dtype);
    x = build_autocast(b, "autocast", x);
    if (b->autocast) {
        weight = build_view(b, "conv1d", weight, &all);
        weight = build_autocast(b, "autocast", weight);
        if (bias != TENSOR_NONE)
            bias = build_autocast(b, "autocast", bias);
    }
    const tensor_id in[] = { x, weight, bias };
    const tensor_id y =
        build_tensor(b, "conv1d", tensor_of(b, x)->dtype, &padded);
    struct op *op = build_op(b, OP_CONV, "conv1d", in, 3);
    op_result(b, op, y);
    op->flop_full = op->flop_causal = hf_conv_flops(b, d);
    return build_view(b, "conv1d", y, &rows);
}

tensor_id torch_conv(struct builder *b, const struct ssm_dims *d, tensor_id x,
                     const struct ssm_conv *conv)
{
    const tensor_id y =
        build_unary(b, OP_ACTIVATION, "silu", torch_plain_conv(b, d, x, conv));
    return build_cast(b, "conv1d", y, tensor_of(b, x)->dtype);
}

/* x, which lies with the sequence last, token by token for a product: a copy,
 * but of one sequence. */
static tensor_id in_order(struct builder *b, const char *name, tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    return b->micro.n > 1 && b->sq.n > 1 ? build_copy(b, name, x)
                                         : build_view(b, name, x, &shape);
}

/* ---- Mamba: a loop over tokens ---- */

struct scan {
    tensor_id u, dt, A, B, C, z;
};

/* What the steps keep: states in fp32 and, where that is not the scan's type,
 * copies of them in it. Where it is, a state serves the product and the next
 * step alike. */
static void keep_states(struct builder *b, const struct ssm_dims *d,
                        struct op *op, enum dtype dtype, tensor_id C)
{
    const bool low = dtype != DT_FP32;
    const struct shape each = SHAPE(b->micro, d->inner, d->state);
    const struct dim fewer = DIM("s-1", b->sq.n - 1);
    const struct shape states =
        SHAPE(b->micro, d->inner, d->state, low ? fewer : b->sq);
    const struct shape copies = SHAPE(b->micro, d->inner, d->state, b->sq);
    torch_pieces(b, op, "first state", dtype, &each);
    torch_pieces(b, op, "states", DT_FP32, &states);
    if (low)
        torch_pieces(b, op, "states in the scan's type", dtype, &copies);
    if (tensor_of(b, C)->dtype == dtype) {
        hf_keep(b, C);
    } else { /* autocast, of each step */
        const struct shape each_C = SHAPE(b->t, d->state);
        torch_pieces(b, op, "C in the scan's type", dtype, &each_C);
    }
}

/* Backward goes from the last token to the first. A step's gradients of what it
 * took from discrete_A and deltaB_u are as large as these, zeros but for the
 * step, and added up: three such at a time, when two steps' copies of the state
 * are gone (select_backward). */
static uint64_t loop_backward(struct builder *b, const struct ssm_dims *d,
                              enum dtype dtype, tensor_id whole)
{
    const uint64_t each = BYTES(b, b->micro.n, d->inner.n, d->state.n);
    const uint64_t low = dtype == DT_FP32 ? 0 : 2 * each * dtype_size(dtype);
    const uint64_t all = hf_size(b, whole);
    if (b->sq.n < 2)
        return hf_bytes(b, PROD(each, 4));
    return all > low ? all - low : 0;
}

/* Up to the end of the function: a list of outputs, and the last state, unless
 * that is kept with the others. */
struct loop_variables {
    tensor_id outputs, state;
};

static tensor_id token_loop(struct builder *b, const struct ssm_dims *d,
                            const tensor_id in[3], enum dtype dtype,
                            struct loop_variables *v)
{
    const struct shape state = SHAPE(b->micro, d->inner, d->state);
    const struct shape rows = SHAPE(b->t, d->inner);
    const tensor_id y = build_tensor(b, "scan", dtype, &rows);
    struct op *op = build_op(b, OP_LOOP, "scan", in, 3);
    op_result(b, op, y);
    v->outputs =
        hf_temporary(op, build_tensor(b, "scan_outputs", dtype, &rows));
    v->state = hf_temporary(op, build_tensor(b, "ssm_state", DT_FP32, &state));
    b->p->tensor[v->state].lone = dtype == DT_FP32;
    hf_keep(b, in[0]); /* deltaB_u is a term of a sum */
    keep_states(b, d, op, dtype, in[2]);
    op = &b->p->op[b->p->n_ops - 1];
    op->back_bytes = loop_backward(b, d, dtype, in[0]);
    op->flop_full = op->flop_causal = hf_scan_flops(b, d);
    return y;
}

/* mamba_selective_scan, its last form: pscan wants a package, and the
 * associative scan torch.compile. */
static tensor_id selective_scan(struct builder *b, const struct ssm_dims *d,
                                const struct scan *s, tensor_id bias)
{
    const enum dtype dtype = tensor_of(b, s->u)->dtype;
    const struct shape whole = SHAPE(b->micro, d->inner, b->sq, d->state);
    const tensor_id skip = ssm_vector(b, d, "D", d->inner);
    const tensor_id D = torch_fp32(b, "D fp32", skip);
    const tensor_id low =
        build_cast(b, "bias", bias, tensor_of(b, s->dt)->dtype);
    tensor_id dt = build_add(b, "dt + bias", s->dt, low);
    dt = torch_softplus(b, dt);
    const tensor_id log = build_mul_as(b, "A dt", s->A, dt, &whole);
    const tensor_id dA = build_unary(b, OP_TANH, "discrete_A", log);
    const tensor_id B = torch_fp32(b, "B fp32", s->B);
    const tensor_id dB = build_mul_as(b, "discrete_B", dt, B, &whole);
    const tensor_id u = torch_fp32(b, "u fp32", s->u);
    const tensor_id dBu = build_mul(b, "deltaB_u", dB, u);
    struct loop_variables v;
    const tensor_id in[] = { dA, dBu, s->C };
    tensor_id y = token_loop(b, d, in, dtype, &v);
    y = build_add(b, "scan + u D", y, build_mul(b, "u D", s->u, D));
    const tensor_id gate = build_unary(b, OP_ACTIVATION, "silu", s->z);
    y = build_mul(b, "scan gated", y, gate);
    const tensor_id frame[] = { dt, dA, dB, dBu, v.outputs, v.state };
    for (unsigned i = 0; i < 6; i++)
        hf_hold(b, "the scan's variables", frame[i]);
    return y;
}

/* Time step, B and C of one projection; Jamba norms them. The time step's own
 * projection is a product with its weight on the left: no module is called. */
static void project_scan(struct builder *b, const struct ssm_dims *d,
                         tensor_id dbl, struct scan *s)
{
    const struct shape parts[] = { SHAPE(b->t, d->rank), SHAPE(b->t, d->state),
                                   SHAPE(b->t, d->state) };
    tensor_id three[3];
    build_split(b, "dt, B, C", dbl, three, parts, 3);
    if (b->spec->ssm.norms) {
        three[0] = ssm_norm(b, "dt_layernorm", three[0], d->rank);
        three[1] = ssm_norm(b, "b_layernorm", three[1], d->state);
        three[2] = ssm_norm(b, "c_layernorm", three[2], d->state);
    }
    s->B = three[1];
    s->C = three[2];
    const tensor_id dt = ssm_project(b, d,
                                     (struct linear){ .name = "dt_proj",
                                                      .lora = LORA_NAMELESS,
                                                      .x = three[0],
                                                      .in = d->rank,
                                                      .out = d->inner });
    s->dt = build_copy(b, "dt", dt);
}

static tensor_id mamba(struct builder *b, const struct ssm_dims *d, tensor_id x)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const struct shape rows = SHAPE(b->t, d->inner);
    const tensor_id in = ssm_project_in(b, d, x, d->inner2);
    const struct param log = { .name = "A_log",
                               .rows = d->inner,
                               .cols = d->state };
    struct scan s = { .A = ssm_decay(b, ssm_matrix(b, d, log)) };
    tensor_id part[2];
    build_split(b, "hidden, gate", ssm_transposed(b, "projected_states", in),
                part, (const struct shape[]){ rows, rows }, 2);
    const struct ssm_conv conv = ssm_conv_params(b, d);
    s.u = torch_conv(b, d, part[0], &conv);
    s.z = part[1];
    const tensor_id dbl =
        ssm_project(b, d,
                    (struct linear){ .name = "x_proj",
                                     .lora = LORA_MASK(LORA_X_PROJ),
                                     .x = in_order(b, "u in order", s.u),
                                     .in = d->inner,
                                     .out = d->x_dbl });
    project_scan(b, d, dbl, &s);
    const tensor_id own = ssm_vector(b, d, "dt_proj.bias", d->inner);
    const tensor_id bias = torch_fp32(b, "bias fp32", own);
    const tensor_id scan = selective_scan(b, d, &s, bias);
    const tensor_id y = build_autocast(
        b, "autocast", build_cast(b, "scan in the stream's type", scan, dtype));
    const tensor_id out =
        ssm_project_out(b, d, in_order(b, "scan in order", y));
    const tensor_id frame[] = { in, s.u, s.dt, scan, s.A, s.B, s.C };
    for (unsigned i = 0; i < 7; i++)
        hf_hold(b, "the mixer's variables", frame[i]);
    return out;
}

tensor_id hf_torch_mixer(struct builder *b, enum mixer mixer,
                         const struct ssm_dims *d, tensor_id x)
{
    switch (mixer) {
    case MIX_MAMBA: return mamba(b, d, x);
    case MIX_MAMBA2: return torch_mamba2(b, d, x);
    case MIX_DELTA:
    case MIX_ATTENTION:
    case MIX_CONV:
    case MIX_NONE:
    case MIXER_COUNT: break;
    }
    return x;
}
