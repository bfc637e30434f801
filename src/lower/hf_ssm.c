/*
 * Owns the layers of transformers' classes that mix tokens through a state
 * instead of attention: MambaMixer, Mamba2Mixer, JambaMambaMixer,
 * Qwen3NextGatedDeltaNet, with the kernels of the packages that they look for.
 * Refuses to know what stands before and after them, and what the kernels hold
 * (hf_scan.c, hf_chunk.c).
 */
#include "lower/hf_torch.h"

#include "base/banned.h"

enum { DELTA_CHUNK = 64 };

struct ssm_dims ssm_dims(struct builder *b)
{
    const struct ssm *m = &b->spec->ssm;
    const uint64_t shared = BYTES(b, 2, m->groups, m->state);
    const uint64_t chunk = m->chunk == 0 ? DELTA_CHUNK : m->chunk;
    return (struct ssm_dims){
        .inner = DIM("D", m->inner),
        .inner2 = DIM("2*D", BYTES(b, 2, m->inner)),
        .heads = DIM("H", m->heads),
        .width = DIM("P", m->head_dim),
        .state = DIM("N", m->state),
        .groups = DIM("G", m->groups),
        .conv = DIM(shared > 0 ? "D+2*G*N" : "D", m->inner + shared),
        .taps = DIM("k", m->conv),
        .rank = DIM("R", m->rank),
        .x_dbl = DIM("R+2*N", m->rank + 2 * m->state),
        .chunks = DIM("chunks", div_up(b->sq.n, chunk)),
        .group = b->spec->mixer == MIX_DELTA ? PG_ATTENTION : PG_SSM,
    };
}

/* ---- parameters ---- */

tensor_id ssm_vector(struct builder *b, const struct ssm_dims *d,
                     const char *name, struct dim n)
{
    return build_vector(b, name, d->group, n, n.n);
}

tensor_id ssm_matrix(struct builder *b, const struct ssm_dims *d,
                     struct param p)
{
    p.group = d->group;
    return build_param(b, &p);
}

struct ssm_conv ssm_conv_params(struct builder *b, const struct ssm_dims *d)
{
    struct ssm_conv c = { .bias = TENSOR_NONE };
    c.weight = ssm_matrix(b, d,
                          (struct param){ .name = "conv1d",
                                          .rows = d->conv,
                                          .cols = d->taps,
                                          .last = { 1, d->taps.n } });
    if (b->spec->ssm.conv_bias)
        c.bias = ssm_vector(b, d, "conv1d.bias", d->conv);
    return c;
}

static tensor_id weight(struct builder *b, const struct ssm_dims *d,
                        const char *name, struct dim out, struct dim in)
{
    return ssm_matrix(
        b, d,
        (struct param){
            .name = name, .rows = out, .cols = in, .matmul = true });
}

tensor_id ssm_project(struct builder *b, const struct ssm_dims *d,
                      struct linear l)
{
    l.group = d->group;
    return build_linear(b, &l);
}

tensor_id ssm_project_in(struct builder *b, const struct ssm_dims *d,
                         tensor_id x, struct dim out)
{
    return ssm_project(b, d,
                       (struct linear){ .name = "in_proj",
                                        .lora = LORA_MASK(LORA_IN_PROJ),
                                        .x = x,
                                        .in = b->h,
                                        .out = out,
                                        .bias = b->spec->ssm.bias });
}

tensor_id ssm_project_scaled(struct builder *b, const struct ssm_dims *d,
                             tensor_id x, struct dim out)
{
    const struct shape shape = SHAPE(out);
    if (b->spec->family != FAM_FALCON_H1)
        return ssm_project_in(b, d, x, out);
    x = build_scale(b, "hidden states scaled", x);
    const tensor_id y = ssm_project_in(b, d, x, out);
    const tensor_id by = build_buffer(b, "mup_vector", b->param, &shape);
    return build_mul(b, "projected_states scaled", y, by);
}

tensor_id ssm_project_out(struct builder *b, const struct ssm_dims *d,
                          tensor_id x)
{
    return ssm_project(b, d,
                       (struct linear){ .name = "out_proj",
                                        .lora = LORA_MASK(LORA_OUT_PROJ),
                                        .x = x,
                                        .in = d->inner,
                                        .out = b->h,
                                        .bias = b->spec->ssm.out_bias });
}

/* ---- what the classes have in common ---- */

tensor_id ssm_decay(struct builder *b, tensor_id log)
{
    const tensor_id up = build_cast(b, "A_log fp32", log, DT_FP32);
    return build_neg(b, "A", build_unary(b, OP_TANH, "exp", up));
}

tensor_id ssm_transposed(struct builder *b, const char *name, tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    const tensor_id y = build_view(b, name, x, &shape);
    if (b->micro.n > 1)
        b->p->op[b->p->n_ops - 1].keep_in = 1;
    return y;
}

/* ---- Mamba ---- */

/* mamba_inner_fn takes all but the first projection. */
static tensor_id mamba(struct builder *b, const struct ssm_dims *d, tensor_id x)
{
    const tensor_id in = ssm_project_in(b, d, x, d->inner2);
    struct ssm_inner f = { .out_bias = TENSOR_NONE };
    f.conv = ssm_conv_params(b, d);
    f.x_proj = weight(b, d, "x_proj", d->x_dbl, d->inner);
    f.dt_proj = weight(b, d, "dt_proj", d->inner, d->rank);
    const tensor_id bias = ssm_vector(b, d, "dt_proj.bias", d->inner);
    f.A = ssm_decay(b, ssm_matrix(b, d,
                                  (struct param){ .name = "A_log",
                                                  .rows = d->inner,
                                                  .cols = d->state }));
    const tensor_id skip = ssm_vector(b, d, "D", d->inner);
    f.D = build_cast(b, "D fp32", skip, DT_FP32);
    f.out_proj = weight(b, d, "out_proj", b->h, d->inner);
    if (b->spec->ssm.out_bias) {
        const tensor_id own = ssm_vector(b, d, "out_proj.bias", b->h);
        f.out_bias = build_cast(b, "bias fp32", own, DT_FP32);
    }
    f.dt_bias = build_cast(b, "bias fp32", bias, DT_FP32);
    const tensor_id xz = build_copy(b, "xz", in);
    const tensor_id y = hf_mamba_inner(b, d, xz, &f);
    hf_hold(b, "projected_states", in);
    return y;
}

/* ---- Jamba ---- */

tensor_id ssm_norm(struct builder *b, const char *name, tensor_id x,
                   struct dim n)
{
    return hf_norm(
        b, &(struct hf_norm){ .name = name, .x = x, .kind = NORM_RMS, .n = n });
}

/* Norms on the time step, B and C stand between the pieces, so that the
 * convolution, the products and the scan are called one by one. */
static tensor_id jamba(struct builder *b, const struct ssm_dims *d, tensor_id x)
{
    const struct shape rows = SHAPE(b->t, d->inner);
    const tensor_id in = ssm_project_in(b, d, x, d->inner2);
    const tensor_id A =
        ssm_decay(b, ssm_matrix(b, d,
                                (struct param){ .name = "A_log",
                                                .rows = d->inner,
                                                .cols = d->state }));
    tensor_id part[2], three[3];
    build_split(b, "hidden, gate", ssm_transposed(b, "projected_states", in),
                part, (const struct shape[]){ rows, rows }, 2);
    const struct ssm_conv conv = ssm_conv_params(b, d);
    const tensor_id mixed = hf_causal_conv(b, d, part[0], &conv);
    const tensor_id dbl =
        ssm_project(b, d,
                    (struct linear){ .name = "x_proj",
                                     .lora = LORA_MASK(LORA_X_PROJ),
                                     .x = mixed,
                                     .in = d->inner,
                                     .out = d->x_dbl });
    const struct shape parts[] = { SHAPE(b->t, d->rank), SHAPE(b->t, d->state),
                                   SHAPE(b->t, d->state) };
    build_split(b, "dt, B, C", dbl, three, parts, 3);
    const tensor_id step = ssm_norm(b, "dt_layernorm", three[0], d->rank);
    const tensor_id B = ssm_norm(b, "b_layernorm", three[1], d->state);
    const tensor_id C = ssm_norm(b, "c_layernorm", three[2], d->state);
    const tensor_id dt = ssm_project(b, d,
                                     (struct linear){ .name = "dt_proj",
                                                      .lora = LORA_NAMELESS,
                                                      .x = step,
                                                      .in = d->rank,
                                                      .out = d->inner });
    const tensor_id bias = ssm_vector(b, d, "dt_proj.bias", d->inner);
    const tensor_id skip = ssm_vector(b, d, "D", d->inner);
    struct ssm_scan s = { .A = A, .B = B, .C = C, .z = part[1] };
    s.dt_bias = build_cast(b, "bias fp32", bias, DT_FP32);
    s.D = build_cast(b, "D fp32", skip, DT_FP32);
    s.u = build_view(b, "u", mixed, &rows);
    s.dt = build_view(b, "dt", dt, &rows);
    const tensor_id scan = hf_selective_scan(b, d, &s);
    const tensor_id flat = b->micro.n > 1
                               ? build_copy(b, "scan in order", scan)
                               : build_view(b, "scan in order", scan, &rows);
    const tensor_id y = ssm_project_out(b, d, flat);
    const tensor_id frame[] = { in, mixed, dbl, dt, scan, A, B, C };
    for (unsigned i = 0; i < 8; i++)
        hf_hold(b, "the mixer's variables", frame[i]);
    return y;
}

/* ---- Mamba-2 ---- */

static tensor_id mamba2(struct builder *b, const struct ssm_dims *d,
                        tensor_id x)
{
    const struct ssm *m = &b->spec->ssm;
    const struct dim all = DIM("2*D+2*G*N+H", m->inner + d->conv.n + m->heads);
    const tensor_id in = ssm_project_scaled(b, d, x, all);
    struct ssm_combined f = { .out_bias = TENSOR_NONE };
    f.conv = ssm_conv_params(b, d);
    f.dt_bias = ssm_vector(b, d, "dt_bias", d->heads);
    f.A = ssm_decay(b, ssm_vector(b, d, "A_log", d->heads));
    f.D = ssm_vector(b, d, "D", d->heads);
    f.norm = m->gate_norm ? build_norm_weight(b, "norm", d->inner)
                          : TENSOR_NONE; /* counted, not estimated */
    f.out_proj = weight(b, d, "out_proj", b->h, d->inner);
    if (m->out_bias)
        f.out_bias = ssm_vector(b, d, "out_proj.bias", b->h);
    return hf_mamba2_combined(b, d, in, &f);
}

/* ---- gated delta net ---- */

/* Of interleaved projections (Qwen3-Next's) each part is copied out. */
struct delta_parts {
    tensor_id of[2]; /* where they were copied from */
    tensor_id qkv, z, b, a;
};

static tensor_id project_delta(struct builder *b, const struct ssm_dims *d,
                               const char *name, tensor_id x, struct dim out,
                               enum lora_target own)
{
    return ssm_project(
        b, d,
        (struct linear){ .name = name,
                         .lora = LORA_MASK(LORA_IN_PROJ) | LORA_MASK(own),
                         .x = x,
                         .in = b->h,
                         .out = out });
}

static struct delta_parts separate_projections(struct builder *b,
                                               const struct ssm_dims *d,
                                               tensor_id x)
{
    struct delta_parts p = { .of = { TENSOR_NONE, TENSOR_NONE } };
    p.qkv = project_delta(b, d, "in_proj_qkv", x, d->conv, LORA_IN_QKV);
    p.z = project_delta(b, d, "in_proj_z", x, d->inner, LORA_IN_Z);
    p.b = project_delta(b, d, "in_proj_b", x, d->heads, LORA_IN_B);
    p.a = project_delta(b, d, "in_proj_a", x, d->heads, LORA_IN_A);
    return p;
}

static struct delta_parts split_projections(struct builder *b,
                                            const struct ssm_dims *d,
                                            tensor_id x)
{
    const struct ssm *m = &b->spec->ssm;
    const tensor_id qkvz =
        project_delta(b, d, "in_proj_qkvz", x,
                      DIM("2*D+2*G*N", m->inner + d->conv.n), LORA_IN_QKVZ);
    const tensor_id ba = project_delta(b, d, "in_proj_ba", x,
                                       DIM("2*H", 2 * m->heads), LORA_IN_BA);
    const struct dim keys = DIM("G*N", BYTES(b, m->groups, m->state));
    const struct shape key = SHAPE(b->t, keys), value = SHAPE(b->t, d->inner);
    const struct shape gate = SHAPE(b->t, d->heads);
    const struct shape all = SHAPE(b->t, d->conv);
    tensor_id part[4], two[2];
    struct delta_parts p;
    build_split(b, "q, k, v, z", qkvz, part,
                (const struct shape[]){ key, key, value, value }, 4);
    build_split(b, "b, a", ba, two, (const struct shape[]){ gate, gate }, 2);
    const tensor_id v = build_copy_as(b, "v", part[2], &value);
    p.z = build_copy_as(b, "z", part[3], &value);
    p.b = build_copy_as(b, "b", two[0], &gate);
    p.a = build_copy_as(b, "a", two[1], &gate);
    const tensor_id q = build_copy_as(b, "q", part[0], &key);
    const tensor_id k = build_copy_as(b, "k", part[1], &key);
    p.qkv = build_cat3(b, "mixed_qkv", (const tensor_id[]){ q, k, v }, &all);
    p.of[0] = qkvz;
    p.of[1] = ba;
    return p;
}

/* -exp(A_log.float()) * softplus(a.float() + dt_bias) */
static tensor_id gates(struct builder *b, tensor_id log, tensor_id a,
                       tensor_id bias)
{
    const tensor_id A = ssm_decay(b, log);
    const tensor_id up = build_cast(b, "a fp32", a, DT_FP32);
    const tensor_id sum = build_add(b, "a + dt_bias", up, bias);
    const tensor_id soft = build_unary(b, OP_ACTIVATION, "softplus", sum);
    return build_mul(b, "g", A, soft);
}

/* Qwen3NextRMSNormGated: normed, times the weight, times silu of the gate in
 * fp32. */
static tensor_id gated_norm(struct builder *b, const struct ssm_dims *d,
                            tensor_id x, tensor_id z)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id scale = build_norm_weight(b, "norm", d->width);
    const tensor_id normed = build_rms_norm_written_out(b, "norm", x, scale);
    const tensor_id up = build_cast(b, "gate fp32", z, DT_FP32);
    const tensor_id act = build_unary(b, OP_ACTIVATION, "silu", up);
    return build_cast(b, "gated", build_mul(b, "gated", normed, act), dtype);
}

static tensor_id delta_net(struct builder *b, const struct ssm_dims *d,
                           tensor_id x)
{
    const bool loops = b->run->ssm_kernel == SSM_KERNEL_TORCH;
    const struct delta_parts p = b->spec->ssm.apart
                                     ? separate_projections(b, d, x)
                                     : split_projections(b, d, x);
    const struct ssm_conv conv = ssm_conv_params(b, d);
    const tensor_id mixed = loops ? torch_conv(b, d, p.qkv, &conv)
                                  : hf_causal_conv(b, d, p.qkv, &conv);
    const struct shape key = SHAPE(b->t, d->groups, d->state);
    const struct shape value = SHAPE(b->t, d->heads, d->width);
    const struct shape flat = SHAPE(b->t, d->inner);
    tensor_id part[3];
    build_split(b, "q, k, v", mixed, part,
                (const struct shape[]){ key, key, value }, 3);
    struct ssm_delta f = { .q = part[0], .k = part[1], .v = part[2] };
    f.beta = build_unary(b, OP_TANH, "sigmoid", p.b);
    const tensor_id log = ssm_vector(b, d, "A_log", d->heads);
    const tensor_id bias = ssm_vector(b, d, "dt_bias", d->heads);
    f.g = gates(b, log, p.a, bias);
    const tensor_id core =
        loops ? torch_delta_rule(b, d, &f) : hf_delta_rule(b, d, &f);
    const tensor_id z = build_view(b, "z", p.z, &value);
    const tensor_id normed = gated_norm(b, d, core, z);
    const tensor_id y =
        ssm_project_out(b, d, build_view(b, "heads", normed, &flat));
    const tensor_id frame[] = { p.of[0], p.of[1], p.z,    p.b,
                                p.a,     mixed,   f.beta, f.g };
    for (unsigned i = p.of[0] == TENSOR_NONE ? 2 : 0; i < 8; i++)
        hf_hold(b, "the mixer's variables", frame[i]);
    return y;
}

tensor_id hf_mixer(struct builder *b, enum mixer mixer, tensor_id x)
{
    if (mixer == MIX_ATTENTION)
        return hf_attention(b, x);
    const struct ssm_dims d = ssm_dims(b);
    if (mixer == MIX_CONV)
        return hf_short_conv(b, &d, x);
    if (b->run->ssm_kernel == SSM_KERNEL_TORCH && mixer != MIX_DELTA)
        return hf_torch_mixer(b, mixer, &d, x);
    switch (mixer) {
    case MIX_MAMBA:
        return b->spec->ssm.norms ? jamba(b, &d, x) : mamba(b, &d, x);
    case MIX_MAMBA2: return mamba2(b, &d, x);
    case MIX_DELTA: return delta_net(b, &d, x);
    case MIX_ATTENTION:
    case MIX_CONV:
    case MIX_NONE:
    case MIXER_COUNT: break;
    }
    return x;
}
