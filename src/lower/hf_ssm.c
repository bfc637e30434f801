/*
 * Owns the layers of transformers' classes that mix tokens through a state
 * instead of attention: Mamba, Mamba-2, Jamba's Mamba, the gated delta net.
 * Refuses to know what stands before and after them.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* Of a delta net it is a kind of attention. */
static enum param_group group_of(const struct builder *b)
{
    return b->spec->mixer == MIX_DELTA ? PG_ATTENTION : PG_SSM;
}

static tensor_id vector(struct builder *b, const char *name, struct dim n)
{
    return build_vector(b, name, group_of(b), n, n.n);
}

static tensor_id matrix(struct builder *b, const char *name, struct dim rows,
                        struct dim cols)
{
    return build_param(b, &(struct param){ .name = name,
                                           .group = group_of(b),
                                           .rows = rows,
                                           .cols = cols });
}

static tensor_id project(struct builder *b, const char *name, tensor_id x,
                         struct dim in, struct dim out)
{
    return build_linear(b, &(struct linear){ .name = name,
                                             .x = x,
                                             .in = in,
                                             .out = out,
                                             .group = group_of(b),
                                             .bias = b->spec->ssm.bias });
}

static void convolution(struct builder *b, struct dim channels)
{
    const struct ssm *m = &b->spec->ssm;
    (void)matrix(b, "conv1d", channels, DIM("k", m->conv));
    if (m->conv_bias)
        (void)vector(b, "conv1d.bias", channels);
}

static tensor_id mamba(struct builder *b, tensor_id x)
{
    const struct ssm *m = &b->spec->ssm;
    const struct dim inner = DIM("D", m->inner), state = DIM("N", m->state);
    const struct dim rank = DIM("R", m->rank);
    (void)project(b, "in_proj", x, b->h, DIM("2*D", 2 * m->inner));
    convolution(b, inner);
    (void)matrix(b, "x_proj", DIM("R+2*N", m->rank + 2 * m->state), inner);
    if (m->norms) {
        (void)build_norm_weight(b, "dt_layernorm", rank);
        (void)build_norm_weight(b, "b_layernorm", state);
        (void)build_norm_weight(b, "c_layernorm", state);
    }
    (void)matrix(b, "dt_proj", inner, rank);
    (void)vector(b, "dt_proj.bias", inner);
    (void)matrix(b, "A_log", inner, state);
    (void)vector(b, "D", inner);
    const struct shape rows = SHAPE(b->t, inner);
    const tensor_id y = build_copy_as(b, "scan", x, &rows);
    return project(b, "out_proj", y, inner, b->h);
}

static tensor_id mamba2(struct builder *b, tensor_id x)
{
    const struct ssm *m = &b->spec->ssm;
    const struct dim inner = DIM("D", m->inner), heads = DIM("H", m->heads);
    const uint64_t conv = m->inner + 2 * m->groups * m->state;
    (void)project(b, "in_proj", x, b->h,
                  DIM("2*D+2*G*N+H", m->inner + conv + m->heads));
    convolution(b, DIM("D+2*G*N", conv));
    (void)vector(b, "dt_bias", heads);
    (void)vector(b, "A_log", heads);
    (void)vector(b, "D", heads);
    (void)build_norm_weight(b, "norm", inner);
    const struct shape rows = SHAPE(b->t, inner);
    const tensor_id y = build_copy_as(b, "scan", x, &rows);
    return project(b, "out_proj", y, inner, b->h);
}

static tensor_id delta_net(struct builder *b, tensor_id x)
{
    const struct ssm *m = &b->spec->ssm;
    const struct dim inner = DIM("D", m->inner), heads = DIM("H", m->heads);
    const uint64_t conv = m->inner + 2 * m->groups * m->state;
    (void)project(b, "in_proj_qkvz", x, b->h,
                  DIM("2*D+2*G*N", m->inner + conv));
    (void)project(b, "in_proj_ba", x, b->h, DIM("2*H", 2 * m->heads));
    convolution(b, DIM("D+2*G*N", conv));
    (void)vector(b, "dt_bias", heads);
    (void)vector(b, "A_log", heads);
    (void)build_norm_weight(b, "norm", DIM("P", m->head_dim));
    const struct shape rows = SHAPE(b->t, inner);
    const tensor_id y = build_copy_as(b, "scan", x, &rows);
    return project(b, "out_proj", y, inner, b->h);
}

tensor_id hf_mixer(struct builder *b, enum mixer mixer, tensor_id x)
{
    switch (mixer) {
    case MIX_MAMBA: return mamba(b, x);
    case MIX_MAMBA2: return mamba2(b, x);
    case MIX_DELTA: return delta_net(b, x);
    case MIX_ATTENTION:
    case MIXER_COUNT: break;
    }
    return hf_attention(b, x);
}
