/*
 * Owns what experts compute of the rows that come to them (Megatron-core,
 * core/transformer/moe/experts.py, shared_experts.py, transformer/mlp.py): in
 * grouped products or one after another, with the activation between. Refuses
 * to know how rows come and go. [docs/method.md eq. megatron-experts]
 */
#include "lower/megatron.h"

#include "base/banned.h"

/* ---- what lies between the products ---- */

static tensor_id plain_activation(struct builder *b, tensor_id x,
                                  tensor_id probs)
{
    if (b->spec->gated_mlp)
        return build_swiglu(b, "activation", x, TENSOR_NONE, probs);
    const tensor_id y = build_unary(b, OP_ACTIVATION, "activation", x);
    if (probs == TENSOR_NONE)
        return y;
    /* back to the dtype it had (experts.py, original_dtype) */
    return build_cast(b, "weighted", build_mul(b, "weighted", y, probs),
                      b->compute);
}

/* weighted_bias_quick_geglu_impl (core/fusions/fused_bias_geglu.py): both halves
 * are clamped and joined again before the fused kernel, which keeps what is
 * joined, the clamps what they were given. */
static tensor_id clamped(struct builder *b, tensor_id x)
{
    const struct shape whole = shape_of(b, x);
    const struct shape half = shape_last(b, x, b->fe);
    tensor_id part[2];
    build_split(b, "gate, up", x, part, (const struct shape[]){ half, half },
                2);
    for (unsigned i = 0; i < 2; i++) {
        part[i] = build_unary(b, OP_ACTIVATION,
                              i == 0 ? "gate clamped" : "up clamped", part[i]);
        struct op *op = &b->p->op[b->p->n_ops - 1];
        op->strided = true;
        op->bounds = (uint8_t)(1 + i);
    }
    return build_cat(b, "clamped", part[0], part[1], &whole);
}

void megatron_activation(struct builder *b, tensor_id x, tensor_id probs,
                         struct linear *fc2)
{
    if (b->spec->family == FAM_GPT_OSS && !b->run->op_fuser)
        x = clamped(b, x);
    if (b->run->act_fp8 && b->spec->gated_mlp && b->spec->act == ACT_SILU)
        megatron_swiglu(b, x, probs, fc2);
    else
        fc2->x = plain_activation(b, x, probs);
}

/* ---- experts (experts.py) ---- */

/* Grouped products leave the second bias to Megatron, which weighs it as the rows
 * are: a product and a sum for each expert, joined, in the wider of the two types
 * (_apply_bias). */
static tensor_id add_bias(struct builder *b, tensor_id y, tensor_id probs,
                          const struct linear *fc2)
{
    const tensor_id bias = build_linear_bias(b, fc2);
    if (bias == TENSOR_NONE)
        return y;
    const struct shape rows = shape_of(b, y);
    const enum dtype dtype = tensor_of(b, y)->dtype;
    const enum dtype wide =
        tensor_of(b, probs)->dtype == DT_FP32 ? DT_FP32 : dtype;
    const tensor_id in[] = { bias, probs };
    const tensor_id weighed = build_tensor(b, "weighed bias", wide, &rows);
    op_result(b, build_op(b, OP_MUL, "weighed bias", in, 2), weighed);
    const tensor_id sum = build_add(b, "+ bias", y, weighed);
    const tensor_id joined = build_tensor(b, "experts", wide, &rows);
    op_result(b, build_op(b, OP_CAT, "experts", &sum, 1), joined);
    return build_cast(b, "experts", joined, dtype);
}

/* Transformer Engine's fused operation of grouped products, which cuDNN has for
 * Blackwell and operands with scales of blocks (pytorch/ops/fused/grouped_mlp.py,
 * fuse_grouped_mlp_ops): the first product writes its result and, activated and
 * cast, the second one's input, whose gradient is activated back and cast by the
 * product that makes it. */
static bool is_fused(const struct builder *b)
{
    return b->run->op_fuser && b->fp8 && b->run->gpu.arch == ARCH_BLACKWELL
           && (b->run->fp8_recipe == FP8_MXFP8
               || b->run->fp8_recipe == FP8_NVFP4);
}

static void fuse(struct builder *b, uint32_t first)
{
    bool between = false; /* the first product and the second */
    for (uint32_t i = first; i < b->p->n_ops; i++) {
        struct op *op = &b->p->op[i];
        if (op->kind == OP_LINEAR && between)
            return;
        op->in_product =
            op->kind == OP_LINEAR
            || (between && (op->kind == OP_SWIGLU || op->kind == OP_QUANTIZE));
        between = between || op->kind == OP_LINEAR;
    }
}

/* So many experts of the rank, one product for all of them. */
static tensor_id products(struct builder *b, tensor_id x, tensor_id probs,
                          uint64_t n)
{
    const struct spec *m = b->spec;
    const uint8_t outer = b->region;
    const uint64_t ffn = m->expert_ffn == 0 ? m->ffn : m->expert_ffn;
    const uint64_t in_all = build_product(b, n, max_u64(b->run->ep, 1));
    struct linear fc1 = { .name = "experts.linear_fc1",
                          .x = x,
                          .in = b->h,
                          .out = m->gated_mlp ? b->fe2 : b->fe,
                          .full_out =
                              m->gated_mlp ? build_product(b, 2, ffn) : ffn,
                          .group = PG_EXPERT,
                          .parallel = PAR_COLUMN,
                          .bias = m->mlp_bias || m->expert_bias,
                          .copies = n,
                          .full_copies = in_all,
                          .lora = LORA_MASK(LORA_GATE) | LORA_MASK(LORA_UP) };
    const bool grouped = b->run->grouped_gemm;
    const uint32_t first = b->p->n_ops;
    megatron_module(b, grouped ? OFFMOD_EXPERT_FC1 : OFFMOD_COUNT);
    if (b->module != 0) /* not in parts, nor in 8 bits (experts.py,
                           set_save_original_input) */
        fc1.keeps_input =
            b->run->fp8_recipe != FP8_MXFP8 && b->run->fp8_recipe != FP8_NVFP4;
    const tensor_id z = megatron_expert(b, &fc1);
    if (grouped)
        megatron_offloaded(b, OFFMOD_EXPERT_FC1, &x, 1);
    struct linear fc2 = { .name = "experts.linear_fc2",
                          .in = b->fe,
                          .out = b->h,
                          .full_in = ffn,
                          .group = PG_EXPERT,
                          .parallel = PAR_ROW,
                          .bias = m->mlp_bias || m->expert_bias,
                          .copies = n,
                          .full_copies = in_all,
                          .lora = LORA_MASK(LORA_DOWN) };
    if (outer == 0 && grouped && megatron_recomputes(b, REMOD_MOE_ACT)
        && !megatron_is_deepseek(b)) {
        build_region(b, REMOD_MOE_ACT);
        fc2.keeps_input = megatron_shares_input(b);
    }
    megatron_module(b, grouped ? OFFMOD_MOE_ACT : OFFMOD_COUNT);
    megatron_activation(b, z, probs, &fc2);
    b->region = outer;
    megatron_module(b, OFFMOD_COUNT);
    const bool apart = grouped && !b->run->op_fuser;
    struct linear bare = fc2;
    bare.bias = fc2.bias && !apart;
    const tensor_id y = megatron_expert(b, &bare);
    if (is_fused(b))
        fuse(b, first);
    if (grouped)
        megatron_offloaded(b, OFFMOD_MOE_ACT, &z, 1);
    return apart ? add_bias(b, y, probs, &fc2) : y;
}

/* Of SequentialMLP: as many turns as one operation can have operands; more
 * experts take them in groups. */
enum { TURNS_MAX = 12 };

static unsigned turns_of(const struct builder *b)
{
    const uint64_t n = b->experts_on.n;
    const uint64_t each = div_up(n, TURNS_MAX);
    return (unsigned)div_up(n, max_u64(each, 1));
}

/* SequentialMLP: rows are split, and what comes out is joined. */
static tensor_id one_by_one(struct builder *b, tensor_id x, tensor_id probs)
{
    const unsigned turns = turns_of(b);
    const uint64_t each = div_up(b->experts_on.n, TURNS_MAX);
    const struct shape all = SHAPE(b->routed, b->h);
    struct shape rows[TURNS_MAX], vectors[TURNS_MAX];
    tensor_id part[TURNS_MAX], weights[TURNS_MAX], out[TURNS_MAX];
    if (turns <= 1)
        return products(b, x, probs, b->experts_on.n);
    uint64_t left = b->routed.n, experts = b->experts_on.n;
    for (unsigned i = 0; i < turns; i++) {
        const uint64_t here =
            left / experts * (each < experts ? each : experts);
        const uint64_t n = i + 1 == turns ? left : here;
        rows[i] = SHAPE(DIM("b*s*k/E", n), b->h);
        vectors[i] = SHAPE(DIM("b*s*k/E", n));
        left -= n;
        experts -= min_u64(each, experts - 1);
    }
    build_split(b, "tokens", x, part, rows, turns);
    build_split(b, "probs", probs, weights, vectors, turns);
    experts = b->experts_on.n;
    for (unsigned i = 0; i < turns; i++) {
        out[i] = products(b, part[i], weights[i], min_u64(each, experts));
        experts -= min_u64(each, experts);
    }
    const tensor_id y =
        build_tensor(b, "experts", tensor_of(b, x)->dtype, &all);
    op_result(b, build_op(b, OP_CAT, "experts", out, turns), y);
    return y;
}

tensor_id megatron_experts(struct builder *b, tensor_id x, tensor_id probs)
{
    if (!b->run->grouped_gemm)
        return one_by_one(b, x, probs);
    x = megatron_padded(b, "padded", x);
    return megatron_padded(b, "unpadded",
                           products(b, x, probs, b->experts_on.n));
}

/* core/transformer/moe/shared_experts.py, use_shared_expert_gate */
tensor_id megatron_gated(struct builder *b, tensor_id x, tensor_id shared)
{
    if (!b->spec->shared_gate)
        return shared;
    const tensor_id logits =
        build_linear(b, &(struct linear){ .name = "shared_expert_gate",
                                          .x = x,
                                          .in = b->h,
                                          .out = b->one,
                                          .group = PG_SHARED_EXPERT,
                                          .in_16_bits = true,
                                          .lora = LORA_NEVER });
    const tensor_id gate = build_unary(b, OP_TANH, "sigmoid", logits);
    return build_mul(b, "shared experts gated", shared, gate);
}
