/*
 * Owns the dense feed-forward parts, gated and plain. Refuses to know what
 * stands before and after them, and experts (hf_moe.c).
 */
#include "lower/hf.h"

#include "base/banned.h"

bool hf_translates(const struct builder *b)
{
    return b->frozen && b->spec->experts > 0 && spec_translates_targets(b->spec)
           && !build_is_packed(b, PG_EXPERT);
}

uint64_t hf_mlp_lora(const struct builder *b, enum lora_target target)
{
    return hf_translates(b) ? LORA_NEVER : LORA_MASK(target);
}

/* ---- dense ---- */

/* MptMLP takes 4 d whatever expansion_ratio says. */
static uint64_t full_ffn(const struct builder *b)
{
    const struct spec *m = b->spec;
    return m->family == FAM_MPT ? 4 * m->hidden : build_ffn(b);
}

static struct dim ffn(const struct builder *b)
{
    if (b->spec->family != FAM_MPT)
        return b->f;
    return DIM(b->f.sym, div_up(full_ffn(b), max_u64(b->run->tp, 1)));
}

static tensor_id down(struct builder *b, tensor_id x)
{
    struct linear l = linear_of_down(b, "down_proj", x);
    l.in = ffn(b);
    l.full_in = full_ffn(b);
    if (hf_translates(b))
        l.lora = LORA_NEVER;
    return hf_from_rows(b, "mlp all-reduce", hf_linear(b, &l));
}

static struct linear up_of(const struct builder *b, tensor_id x)
{
    struct linear l = linear_of_up(b, "up_proj", x);
    l.out = ffn(b);
    l.full_out = full_ffn(b);
    if (hf_translates(b))
        l.lora = LORA_NEVER;
    return l;
}

/* One matrix for gate and up (Phi-3): two views of its result. */
static tensor_id fused_gate_up(struct builder *b, tensor_id x)
{
    struct linear l = up_of(b, x);
    l.name = "gate_up_proj";
    l.out = b->f2;
    l.full_out = 2 * b->spec->ffn;
    l.lora |= LORA_MASK(LORA_GATE);
    const tensor_id both = hf_linear(b, &l);
    if (b->spec->act == ACT_GEGELU)
        return hf_gegelu(b, both);
    if (hf_is_liger(b))
        return build_swiglu(b, "swiglu", both, TENSOR_NONE, TENSOR_NONE);
    const struct shape half = shape_last(b, both, b->f);
    tensor_id part[2];
    build_split(b, "gate, up", both, part, (const struct shape[]){ half, half },
                2);
    const tensor_id act = build_activation(b, "act", b->spec->act, part[0]);
    return build_mul(b, "gated", part[1], act);
}

/* liger_kernel/ops/swiglu.py: the gradients are written over the factors. */
static tensor_id liger_swiglu(struct builder *b, tensor_id gate, tensor_id up)
{
    const tensor_id out = build_swiglu(b, "swiglu", gate, up, TENSOR_NONE);
    build_place(b, PLACE_KEPT);
    return out;
}

/* T5, BART. T5 then casts to the weight's dtype, which autocast undoes in a
 * copy; the former is a variable, as it is of others (T5DenseActDense.forward,
 * GPT2MLP.forward). */
static tensor_id dropped_down(struct builder *b, tensor_id x)
{
    x = build_dropout(b, "activation dropout", x, b->run->act_dropout);
    if (b->spec->relative_buckets > 0)
        x = build_cast(b, "as the weight", x, b->param);
    const tensor_id y = down(b, x);
    hf_hold(b, "hidden_states", x);
    return y;
}

/* FalconH1MLP: the gate's product scaled, and the whole (mlp_multipliers). */
static tensor_id scaled_mlp(struct builder *b, tensor_id x)
{
    struct linear l = up_of(b, x);
    const tensor_id up = hf_linear(b, &l);
    l = up_of(b, x);
    l.name = "gate_proj";
    l.lora = hf_mlp_lora(b, LORA_GATE);
    const tensor_id gate = build_scale(b, "gate scaled", hf_linear(b, &l));
    const tensor_id act = build_activation(b, "act", b->spec->act, gate);
    return build_scale(b, "down scaled",
                       down(b, build_mul(b, "gated", up, act)));
}

static tensor_id gated(struct builder *b, tensor_id x)
{
    struct linear l = up_of(b, x);
    l.name = "gate_proj";
    l.lora = hf_mlp_lora(b, LORA_GATE);
    const tensor_id gate = hf_linear(b, &l);
    l = up_of(b, x);
    if (hf_is_liger(b))
        return down(b, liger_swiglu(b, gate, hf_linear(b, &l)));
    const tensor_id act = build_activation(b, "act", b->spec->act, gate);
    const tensor_id up = hf_linear(b, &l);
    const tensor_id out = dropped_down(b, build_mul(b, "gated", act, up));
    if (b->spec->relative_buckets > 0) { /* T5DenseGatedActDense.forward */
        hf_hold(b, "hidden_gelu", act);
        hf_hold(b, "hidden_linear", up);
    }
    return out;
}

tensor_id hf_mlp(struct builder *b, tensor_id x)
{
    if (b->spec->family == FAM_FALCON_H1)
        return scaled_mlp(b, x);
    if (b->spec->gated_mlp)
        return b->spec->fused_gate_up ? down(b, fused_gate_up(b, x))
                                      : gated(b, x);
    const struct linear l = up_of(b, x);
    const tensor_id act =
        build_activation(b, "act", b->spec->act, hf_linear(b, &l));
    return dropped_down(b, act);
}
