/*
 * Owns what cannot be: keys that contradict one another, the model or the
 * GPU, and the table of what is not modelled yet. Changes nothing.
 */
#include "spec/resolve.h"

#include "base/count.h"

#include <inttypes.h>

#include "base/banned.h"

/* ---- not modelled yet ---- */

/* A key whose resolved value is `value`, or above it. A row goes when the
 * library learns to model what it names. */
static const struct refusal {
    enum setup_key key;
    enum { IS, ABOVE } how;
    uint64_t value;
    const char *hint;
} refusals[] = {
    { KEY_SCHEDULE, IS, SCHED_ZB_H1, "use --schedule 1f1b: the same peak" },
    { KEY_SCHEDULE, IS, SCHED_ZB_V, "use 1f1b, gpipe or interleaved" },
    { KEY_SCHEDULE, IS, SCHED_DUALPIPE, "use 1f1b, gpipe or interleaved" },
    { KEY_SCHEDULE, IS, SCHED_NAIVE, "use 1f1b, gpipe or interleaved" },
    { KEY_IMPLEMENTATION, IS, IMPL_LITGPT,
      "use --implementation hf with --loss chunked: LitGPT's layers and loss" },
    { KEY_SSM_KERNEL, IS, SSM_KERNEL_TORCH,
      "use --ssm-kernel fused, with its packages installed; without them a "
      "layer keeps several times as much" },
    { KEY_CUDA_GRAPH, IS, 1, "leave it out: the pools come on top" },
    { KEY_EP_OVERLAP, IS, 1, "leave it out: one micro-batch in flight" },
    { KEY_OFFLOAD_OPTIMIZER, IS, OFFLOAD_NVME, "use --offload-optimizer cpu" },
    { KEY_OFFLOAD_PARAMS, IS, OFFLOAD_NVME, "use --offload-params cpu" },
    { KEY_OFFLOAD_ACTIVATIONS, IS, OFFLOAD_NVME,
      "use --offload-activations cpu" },
    { KEY_PRECISION, IS, PREC_FP4_MIXED, "use --precision fp8-mixed" },
    { KEY_FP8_PARAMS, IS, 1, "leave it out: weights in 16 bits" },
};

static void check_modelled(const struct run *r, struct diag *d)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *x = &refusals[i];
        if (!r->setup.set[x->key])
            continue;
        uint64_t n = r->setup.v[x->key].n;
        if (x->how == IS ? n != x->value : n <= x->value)
            continue;
        char buf[RESOLVE_TEXT_MAX];
        const memplan_field *f = setup_field(x->key);
        memplan_error *e =
            f->type == MEMPLAN_TYPE_BOOL
                ? setup_error(d, MEMPLAN_E_UNSUPPORTED, x->key,
                              "'%s' is not modelled yet", f->key)
                : setup_error(d, MEMPLAN_E_UNSUPPORTED, x->key,
                              "%s '%s' is not modelled yet", f->key,
                              resolve_text(r, x->key, buf));
        diag_hint(e, "%s", x->hint);
    }
}

/* Hugging Face layers run whole on each rank here. */
static void check_split_layers(const struct run *r, struct diag *d)
{
    static const enum setup_key keys[] = { KEY_TP, KEY_PP, KEY_CP, KEY_EP };
    char buf[RESOLVE_TEXT_MAX];
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (r->setup.v[keys[i]].n <= 1)
            continue;
        bool unsplit = keys[i] == KEY_PP && r->engine == ENGINE_FSDP;
        if (!resolve_is_hf(r) && !unsplit)
            continue;
        enum setup_key what =
            resolve_is_hf(r) ? KEY_IMPLEMENTATION : KEY_ENGINE;
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, keys[i],
                        "%s %" PRIu64 " with %s '%s' is not modelled yet",
                        setup_field(keys[i])->key, r->setup.v[keys[i]].n,
                        setup_field(what)->key, resolve_text(r, what, buf));
        diag_hint(e, "use --framework megatron or torchtitan");
    }
}

/* Liger replaces modules of models that it knows by name, and of these few
 * others than those here (liger_kernel/transformers/monkey_patch.py). */
static bool has_no_liger(const struct spec *s)
{
    static const enum family none[] = {
        FAM_GLM,      FAM_SEED_OSS, FAM_MINISTRAL, FAM_HUNYUAN,
        FAM_ERNIE,    FAM_OLMO3,    FAM_ERNIE_MOE, FAM_DOTS1,
        FAM_NEMOTRON, FAM_EXAONE4,  FAM_COHERE2,   FAM_MINICPM3,
        FAM_LLAMA4,   FAM_GROK,     FAM_PHI3SMALL, FAM_DEEPSEEK_V32,
    };
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        if (none[i] == s->family)
            return true;
    }
    return false;
}

static void check_liger(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    if (r->impl != IMPL_HF_LIGER || !has_no_liger(s))
        return;
    memplan_error *e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_IMPLEMENTATION,
                                   "implementation 'hf-liger' of a '%s' model "
                                   "is not modelled yet",
                                   s->model_type);
    diag_hint(e, "use --implementation hf");
}

/* Phi3SmallModel.forward pads sequences to whole blocks. */
static void check_blocks(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    enum { BLOCK = 64 };
    if (s->block_stride == 0 || r->seq_len % BLOCK == 0)
        return;
    memplan_error *e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_SEQ_LEN,
                                   "a '%s' model pads sequences to %d tokens, "
                                   "which is not modelled",
                                   s->model_type, BLOCK);
    diag_hint(e, "use a multiple of %d", BLOCK);
}

/* Their classes in transformers run experts one after another. */
static void check_hf_family(const struct run *r, const struct spec *s,
                            struct diag *d)
{
    if (!resolve_is_hf(r) || (s->family != FAM_DBRX && s->family != FAM_PHIMOE))
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_IMPLEMENTATION,
                    "implementation 'hf' of a '%s' model is not modelled yet",
                    s->model_type);
    diag_hint(e, "use --framework megatron");
}

/* ---- engine ---- */

static void zero_conflict(const struct run *r, const char *why,
                          const char *hint, struct diag *d)
{
    memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_ZERO,
                                   "zero %" PRIu64 " %s", r->zero, why);
    diag_hint(e, "%s", hint);
}

static void check_zero_0_of_fsdp(const struct run *r, struct diag *d)
{
    if (r->zero != 0)
        return;
    if (r->engine == ENGINE_FSDP2) {
        zero_conflict(r, "with engine 'fsdp2', which always shards",
                      "use --zero 2 or 3, or --framework hf for DDP", d);
        return;
    }
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_ZERO,
                    "zero 0 with engine 'fsdp' (NO_SHARD) is not modelled yet");
    diag_hint(e, "use --framework hf: DDP keeps everything whole too");
}

static void check_zero_of_megatron_fsdp(const struct run *r, struct diag *d)
{
    if (r->zero == 3)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_ZERO,
                    "zero %" PRIu64 " with engine 'megatron-fsdp' is not "
                    "modelled yet",
                    r->zero);
    diag_hint(e, "use --zero 3 (optim_grads_params), or --engine megatron");
}

static void check_zero(const struct run *r, struct diag *d)
{
    switch (r->engine) {
    case ENGINE_DDP:
        if (r->zero > 0)
            zero_conflict(r, "with engine 'ddp', which shards nothing",
                          "use --framework deepspeed (or fsdp for zero 2, 3)",
                          d);
        return;
    case ENGINE_DEEPSPEED:
        if (r->pp > 1 && r->zero > 1)
            zero_conflict(r,
                          "under DeepSpeed's pipelines, which shard "
                          "optimizer states only",
                          "use --zero 1 or 0, or --pp 1", d);
        return;
    case ENGINE_FSDP:
    case ENGINE_FSDP2:
        check_zero_0_of_fsdp(r, d);
        if (r->zero == 1)
            zero_conflict(r, "is not something FSDP has",
                          "use --zero 2 (shard_grad_op) or 3 (full_shard), "
                          "or --framework deepspeed",
                          d);
        return;
    case ENGINE_MEGATRON:
        if (r->zero > 1)
            zero_conflict(r,
                          "with engine 'megatron', whose distributed "
                          "optimizer is stage 1",
                          "use --zero 1, or 3 for Megatron-FSDP", d);
        return;
    case ENGINE_MEGATRON_FSDP: check_zero_of_megatron_fsdp(r, d); return;
    case ENGINE_COUNT: return;
    }
}

/* FSDP moves shards, gradients and optimizer together, or nothing. */
static void check_offload_params(const struct run *r, struct diag *d)
{
    if (r->offload_params != OFFLOAD_CPU)
        return;
    char buf[RESOLVE_TEXT_MAX];
    if (!resolve_is_fsdp(r)) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_PARAMS,
            "offload_params 'cpu' with engine '%s' is not modelled yet",
            resolve_text(r, KEY_ENGINE, buf));
        diag_hint(e, r->engine == ENGINE_DEEPSPEED
                         ? "offload_optimizer cpu is, or use --framework fsdp"
                         : "use --framework fsdp");
    } else if (r->zero == 0 || r->offload_optimizer != OFFLOAD_CPU) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_PARAMS,
            r->zero == 0 ? "offload_params 'cpu' with zero 0"
                         : "offload_params 'cpu' without the optimizer, which "
                           "updates where the shards are");
        diag_hint(e, r->zero == 0 ? "use --zero 3"
                                  : "leave offload_optimizer out");
    }
}

static void check_offload(const struct run *r, struct diag *d)
{
    check_offload_params(r, d);
    if (r->offload_optimizer != OFFLOAD_CPU)
        return;
    char buf[RESOLVE_TEXT_MAX];
    if (resolve_is_fsdp(r)) {
        if (r->offload_params == OFFLOAD_CPU)
            return;
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_OPTIMIZER,
            "offload_optimizer 'cpu' with engine '%s', which moves the "
            "optimizer only with its shards",
            resolve_text(r, KEY_ENGINE, buf));
        diag_hint(e, "add --offload-params cpu");
        return;
    }
    if (r->engine != ENGINE_DEEPSPEED) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_OPTIMIZER,
            "offload_optimizer 'cpu' with engine '%s' is not modelled yet",
            resolve_text(r, KEY_ENGINE, buf));
        diag_hint(e, "use --framework deepspeed");
    } else if (r->zero == 0) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_OPTIMIZER,
                        "offload_optimizer 'cpu' with zero 0");
        diag_hint(e, "add --zero 1, 2 or 3");
    }
}

/* Its projections are of whole matrices, shards are cut through them. */
static void check_galore(const struct run *r, struct diag *d)
{
    if (r->optimizer != OPT_GALORE || (r->zero == 0 && !resolve_is_fsdp(r)))
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER,
                    "optimizer 'galore' with sharded states is not modelled "
                    "yet");
    diag_hint(e, "use --zero 0 (with hf, deepspeed or megatron), or "
                 "--optimizer adamw");
}

/* ---- number formats ---- */

static bool is_float(enum dtype t)
{
    return t == DT_FP32 || t == DT_BF16 || t == DT_FP16;
}

static void check_dtype(const struct run *r, enum setup_key key, bool none_ok,
                        struct diag *d)
{
    if (!r->given[key])
        return; /* follows from one that was given */
    enum dtype t = (enum dtype)r->setup.v[key].n;
    bool ok = is_float(t) || (t == DT_NONE && none_ok)
              || (key == KEY_OPTIMIZER_DTYPE && t != DT_NONE);
    if (ok)
        return;
    memplan_error *e = setup_error(
        d, t == DT_NONE ? MEMPLAN_E_CONFLICT : MEMPLAN_E_UNSUPPORTED, key,
        t == DT_NONE ? "%s '%s' leaves nothing to train with"
                     : "%s '%s' is not modelled yet",
        setup_field(key)->key, dtype_name(t));
    diag_hint(e, none_ok ? "use fp32, bf16, fp16 or none"
                         : "use fp32, bf16 or fp16");
}

/* autograd gives a gradient its weight's dtype. Who keeps another one:
 * DeepSpeed's stages 1 (BF16_Optimizer) and 3, FSDP and Megatron; stage 2
 * accumulates in the 16-bit type whatever grad_accum_dtype says. */
static void check_grad_dtype(const struct run *r, struct diag *d)
{
    enum dtype t = r->prec.grad, param = r->prec.param;
    bool ds = r->engine == ENGINE_DEEPSPEED;
    if (!r->given[KEY_GRAD_DTYPE] || t == param || !is_float(t))
        return;
    if (ds ? r->zero == 1 || r->zero == 3 || run_is_bf16_pipeline(r)
           : r->engine != ENGINE_DDP)
        return;
    char stage[RESOLVE_TEXT_MAX] = "";
    if (ds)
        str_format(stage, sizeof(stage), " and zero %" PRIu64, r->zero);
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_GRAD_DTYPE,
        "grad_dtype '%s' with engine '%s'%s, whose gradients have "
        "the weights' dtype, %s",
        dtype_name(t), ds ? "deepspeed" : "ddp", stage, dtype_name(param));
    if (ds)
        diag_hint(e, "leave it out, or use --zero 1 or 3");
    else
        diag_hint(e, "leave it out, or use %s %s",
                  r->lora_rank > 0 ? "--lora-dtype" : "--param-dtype",
                  dtype_name(t));
}

static void check_master_dtype(const struct run *r, struct diag *d)
{
    if (!r->given[KEY_MASTER_DTYPE] || !resolve_is_fsdp(r)
        || !is_float(r->prec.master))
        return; /* none, or the shards themselves */
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_MASTER_DTYPE,
        "master_dtype '%s' with engine '%s', which keeps one copy, the shards",
        dtype_name(r->prec.master), resolve_text(r, KEY_ENGINE, buf));
    diag_hint(e, "leave it out: with --precision bf16-mixed the fp32 shards "
                 "are the master copy");
}

/* A format without a peak would be computed at another one's. */
static void check_peak(const struct run *r, struct diag *d)
{
    const struct gpu *g = &r->gpu;
    const char *lacks = NULL, *hint = NULL;
    if (r->precision == PREC_FP8_MIXED && g->peak_fp8_flop_s <= 0) {
        lacks = "fp8";
        hint = "use --precision bf16-mixed, or --gpu h100-80gb";
    } else if (r->precision == PREC_FP4_MIXED && g->peak_fp4_flop_s <= 0) {
        lacks = "fp4";
        hint = "use --precision bf16-mixed, or --gpu b200";
    } else if (r->precision == PREC_TF32 && g->peak_tf32_flop_s <= 0) {
        lacks = "tf32";
        hint = "use --precision fp32";
    }
    if (!lacks)
        return;
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_PRECISION,
                    "precision '%s' on %s, which has no %s",
                    resolve_text(r, KEY_PRECISION, buf), g->name, lacks);
    diag_hint(e, "%s", hint);
}

static void check_precision(const struct run *r, struct diag *d)
{
    check_dtype(r, KEY_PARAM_DTYPE, false, d);
    check_dtype(r, KEY_GRAD_DTYPE, false, d);
    check_dtype(r, KEY_REDUCE_DTYPE, false, d);
    check_dtype(r, KEY_MASTER_DTYPE, true, d);
    check_dtype(r, KEY_OPTIMIZER_DTYPE, r->optimizer == OPT_NONE, d);

    check_grad_dtype(r, d);
    check_master_dtype(r, d);
    check_peak(r, d);

    memplan_error *e = NULL;
    char buf[RESOLVE_TEXT_MAX];
    if (r->prec.autocast
        && (r->engine == ENGINE_MEGATRON
            || r->engine == ENGINE_MEGATRON_FSDP)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_PRECISION,
                        "engine 'megatron' has no 32-bit weights under "
                        "autocast");
        diag_hint(e, "use --precision bf16-mixed or fp16-mixed");
    }
    if (r->given[KEY_FP8_RECIPE] && !r->prec.fp8) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FP8_RECIPE,
                        "fp8_recipe with precision '%s'",
                        resolve_text(r, KEY_PRECISION, buf));
        diag_hint(e, "add --precision fp8-mixed");
    }
}

/* ---- the model ---- */

static void uneven(struct diag *d, enum setup_key key, uint64_t degree,
                   uint64_t n, const char *what)
{
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, key,
                    "%" PRIu64 " %s do not split over %s %" PRIu64, n, what,
                    setup_field(key)->key, degree);
    resolve_hint_divisors(e, n);
}

static void check_tp(const struct run *r, const struct spec *s, struct diag *d)
{
    uint64_t tp = r->tp;
    if (tp == 1 || spec_is_convnet(s)) /* refused as a whole */
        return;
    if (s->heads % tp != 0) {
        uneven(d, KEY_TP, tp, s->heads, "attention heads");
        return; /* the rest would say the same again */
    }
    /* Megatron gives several ranks a copy of one key-value head. */
    bool copied =
        s->kv_heads > 0 && tp % s->kv_heads == 0 && resolve_is_megatron(r);
    if (s->kv_heads % tp != 0 && !copied)
        uneven(d, KEY_TP, tp, s->kv_heads, "key-value heads");
    if (s->hidden % tp != 0)
        uneven(d, KEY_TP, tp, s->hidden, "hidden channels");
    if (s->ffn % tp != 0)
        uneven(d, KEY_TP, tp, s->ffn, "feed-forward channels");
    if (s->shared_ffn % tp != 0)
        uneven(d, KEY_TP, tp, s->shared_ffn, "shared-expert channels");
    if (r->vocab % tp == 0 || !resolve_is_megatron(r))
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_VOCAB_MULTIPLE,
                    "vocabulary of %" PRIu64 " does not split over tp %" PRIu64,
                    r->vocab, tp);
    diag_hint(e, "use --vocab-multiple %" PRIu64 ", Megatron's own", 128 * tp);
}

/* A rank cannot get more than the tokens of all ranks of its group. */
static void check_routing(const struct run *r, struct diag *d)
{
    if (r->ep > 1 && r->moe_imbalance > (double)r->ep) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_MOE_IMBALANCE,
                        "moe_imbalance %g with ep %" PRIu64
                        ": one rank would get more than all tokens",
                        r->moe_imbalance, r->ep);
        diag_hint(e, "use at most %" PRIu64, r->ep);
    }
    if (r->moe_padded && !(r->moe_capacity > 0)) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_MOE_PAD_TO_CAPACITY,
                        "moe_pad_expert_input_to_capacity without a capacity");
        diag_hint(e, "add --moe-expert-capacity-factor 1.0");
    }
}

static void check_experts(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    if (r->ep > 1 && s->experts == 0) {
        memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_EP,
                                       "ep %" PRIu64 " for a model without "
                                       "experts",
                                       r->ep);
        diag_hint(e, "leave ep out");
    } else if (r->ep > 1 && s->experts % r->ep != 0) {
        uneven(d, KEY_EP, r->ep, s->experts, "experts");
    }
    const uint64_t ffn = s->expert_ffn == 0 ? s->ffn : s->expert_ffn;
    if (ffn % r->etp != 0)
        uneven(d, KEY_ETP, r->etp, ffn, "expert channels");
    if (s->experts > 0)
        check_routing(r, d);
}

static void check_sequence(const struct run *r, const struct spec *s,
                           struct diag *d)
{
    uint64_t limit =
        s->max_positions > 0 ? s->max_positions : s->learned_positions;
    memplan_error *e = NULL;
    if (s->position == POS_LEARNED && limit > 0 && r->seq_len > limit) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_SEQ_LEN,
                        "seq_len %" PRIu64 " is beyond the model's %" PRIu64
                        " learned positions",
                        r->seq_len, limit);
        diag_hint(e, "use --seq-len %" PRIu64 " or less", limit);
    }
    /* A causal mask is balanced by giving each rank two chunks, one from
     * either end. Sequence parallelism splits what is left over tp. */
    uint64_t unit = r->cp > 1 ? 2 * r->cp : 1;
    const char *what = "2 x cp";
    enum setup_key key = KEY_CP;
    bool tp_splits = r->tp > 1 && s->heads % r->tp == 0; /* else said above */
    if (r->sequence_parallel && tp_splits) {
        unit = r->cp > 1 ? 2 * r->cp * r->tp : r->tp;
        what = r->cp > 1 ? "2 x cp x tp" : "tp, for sequence parallelism";
        key = r->cp > 1 ? KEY_CP : KEY_TP;
    }
    if (r->seq_len % unit != 0) {
        uint64_t below = r->seq_len / unit * unit;
        e = setup_error(d, MEMPLAN_E_CONFLICT, key,
                        "seq_len %" PRIu64 " is not a multiple of %" PRIu64
                        " (%s)",
                        r->seq_len, unit, what);
        if (below > 0)
            diag_hint(e, "use --seq-len %" PRIu64 " or %" PRIu64, below,
                      below + unit);
        else
            diag_hint(e, "use --seq-len %" PRIu64, unit);
    }
    if (r->given[KEY_DECODER_SEQ_LEN] && s->decoder_layers == 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_DECODER_SEQ_LEN,
                        "decoder_seq_len for a model with one stack");
        diag_hint(e, "leave it out: seq_len is the decoder's");
    }
}

/* ---- recomputation, kernels ---- */

static void pointless(struct diag *d, enum setup_key key, const char *without,
                      const char *hint)
{
    memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, key, "%s without %s",
                                   setup_field(key)->key, without);
    diag_hint(e, "%s", hint);
}

static void check_modules(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    uint64_t sparse =
        1u << REMOD_MOE | 1u << REMOD_MOE_ACT | 1u << REMOD_SHARED_EXPERTS;
    memplan_error *e = NULL;
    if (r->recompute_modules >> REMOD_MLA_UP_PROJ & 1 && s->kv_rank == 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_RECOMPUTE_MODULES,
                        "recompute_modules 'mla_up_proj' for a model without "
                        "multi-head latent attention");
        diag_hint(e, "use core_attn, layernorm or mlp");
    }
    if (r->recompute_modules & sparse && s->experts == 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_RECOMPUTE_MODULES,
                        "recompute_modules names experts, and the model has "
                        "none");
        diag_hint(e, "use core_attn, layernorm or mlp");
    }
}

/* Each layer compiled by itself; others compile whole models. */
static void check_compile(const struct run *r, struct diag *d)
{
    if (!r->compile || r->impl == IMPL_TORCHTITAN || r->impl == IMPL_TORCHTUNE)
        return;
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_COMPILE,
                    "'compile' is not modelled for %s layers yet",
                    resolve_text(r, KEY_IMPLEMENTATION, buf));
    diag_hint(e, "leave it out for what eager kernels need, or use "
                 "--implementation torchtitan");
}

/* PyTorch 2.0's lists were read for Adam alone (torch/optim/adamw.py); its
 * Adagrad and RMSprop made others. */
static void check_foreach(const struct run *r, struct diag *d)
{
    if (r->optimizer_impl != OPTIMPL_FOREACH_2_0 || r->optimizer == OPT_ADAMW)
        return;
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER_IMPL,
                    "optimizer_impl 'foreach-2.0' with optimizer '%s' is not "
                    "modelled",
                    resolve_text(r, KEY_OPTIMIZER, buf));
    diag_hint(e, "use --optimizer-impl foreach, or --optimizer adamw");
}

/* One update a weight, once its gradient is there: gradients are neither summed
 * over micro-batches nor reduced first. */
static void check_update_in_backward(const struct run *r, struct diag *d)
{
    if (!r->optimizer_in_backward)
        return;
    char buf[RESOLVE_TEXT_MAX];
    if (r->engine != ENGINE_DDP || r->gpus > 1) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER_IN_BACKWARD,
                        "optimizer_in_backward with engine '%s' on %" PRIu64
                        " GPUs is not modelled yet",
                        resolve_text(r, KEY_ENGINE, buf), r->gpus);
        diag_hint(e, "leave it out, or use --engine ddp --gpus 1");
    } else if (r->grad_accum > 1) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_OPTIMIZER_IN_BACKWARD,
                        "optimizer_in_backward with %" PRIu64
                        " micro-batches a step, which have no sum then",
                        r->grad_accum);
        diag_hint(e, "use --grad-accum 1");
    } else if (r->zeroes_grads) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_ZERO_GRAD_SET_TO_NONE,
            "gradients that stay, with optimizer_in_backward, which frees "
            "each as it is used");
        diag_hint(e, "leave out --zero-grad-set-to-none");
    }
}

/* torchtune's OffloadActivations around checkpointed layers: what they keep is
 * one tensor a layer. */
static void check_offloaded_activations(const struct run *r, struct diag *d)
{
    if (r->offload_activations != OFFLOAD_CPU)
        return;
    char buf[RESOLVE_TEXT_MAX];
    if (r->impl != IMPL_TORCHTUNE) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                        "offload_activations 'cpu' is not modelled for %s "
                        "layers yet",
                        resolve_text(r, KEY_IMPLEMENTATION, buf));
        diag_hint(e, "leave it out, or use --framework torchtune");
    } else if (r->recompute != RECOMP_FULL) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                        "offload_activations 'cpu' without recompute 'full' "
                        "is not modelled yet");
        diag_hint(e, "add --recompute full");
    }
}

/* A policy is written for one implementation's operations. */
static void check_ops(const struct run *r, struct diag *d)
{
    if (r->recompute != RECOMP_OPS || r->impl == IMPL_TORCHTITAN)
        return;
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_RECOMPUTE,
                    "recompute 'ops' is not modelled for %s layers yet",
                    resolve_text(r, KEY_IMPLEMENTATION, buf));
    diag_hint(e, "use --recompute full, or --framework torchtitan");
}

/* Operations outside Megatron and the paper belong to no module. */
static void check_selective(const struct run *r, struct diag *d)
{
    if (r->recompute != RECOMP_SELECTIVE
        || (!resolve_is_hf(r) && r->impl != IMPL_TORCHTITAN))
        return;
    char buf[RESOLVE_TEXT_MAX];
    enum setup_key key =
        r->given[KEY_RECOMPUTE] ? KEY_RECOMPUTE : KEY_RECOMPUTE_MODULES;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                    "selective recompute is not modelled for %s layers yet",
                    resolve_text(r, KEY_IMPLEMENTATION, buf));
    diag_hint(e, "use --recompute full, or --framework megatron%s",
              r->attention == ATTN_FLASH
                  ? "; with flash attention it saves nothing anyway"
                  : "");
}

/* Whose loops are their own, or a pipeline's. */
static void check_outputs(const struct run *r, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    const bool titan = r->impl == IMPL_TORCHTITAN && r->pp == 1;
    const bool known = resolve_is_hf(r) || titan;
    if (r->fp32_logits && (!known || r->loss != LOSS_STANDARD)) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FP32_LOGITS,
                        "'fp32_logits' is modelled with hf and torchtitan "
                        "layers and loss 'standard' only");
        diag_hint(e, "leave it out");
    }
    if (!r->given[KEY_KEEP_OUTPUTS] || !r->keep_outputs || resolve_is_hf(r)
        || (titan && r->loss == LOSS_STANDARD))
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_UNSUPPORTED, KEY_KEEP_OUTPUTS,
        "'keep_outputs' with implementation '%s' is not modelled yet",
        resolve_text(r, KEY_IMPLEMENTATION, buf));
    diag_hint(e, "leave it out, or use --implementation hf");
}

static void check_recompute(const struct run *r, const struct spec *s,
                            struct diag *d)
{
    if (r->given[KEY_RECOMPUTE_MODULES] && r->recompute != RECOMP_SELECTIVE)
        pointless(d, KEY_RECOMPUTE_MODULES, "recompute 'selective'",
                  "add --recompute selective");
    if (r->given[KEY_RECOMPUTE_LAYERS] && r->recompute == RECOMP_NONE)
        pointless(d, KEY_RECOMPUTE_LAYERS, "recompute",
                  "add --recompute full or selective");
    if (r->given[KEY_RECOMPUTE_GRANULARITY] && r->recompute == RECOMP_NONE)
        pointless(d, KEY_RECOMPUTE_GRANULARITY, "recompute 'full'",
                  "add --recompute full");
    if (r->given[KEY_RECOMPUTE_REENTRANT] && r->recompute_reentrant
        && r->recompute != RECOMP_FULL)
        pointless(d, KEY_RECOMPUTE_REENTRANT, "recompute 'full'",
                  "add --recompute full");
    check_modules(r, s, d);
    check_selective(r, d);
    check_ops(r, d);
    check_compile(r, d);
    check_foreach(r, d);
    check_update_in_backward(r, d);
    check_offloaded_activations(r, d);
    if (r->recompute == RECOMP_NONE)
        return;

    uint64_t most = 0;
    for (uint64_t i = 0; i < r->pp; i++)
        most = max_u64(most, r->stage_layers[i]);
    static const enum setup_key keys[] = { KEY_RECOMPUTE_LAYERS,
                                           KEY_RECOMPUTE_GRANULARITY };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        uint64_t n = r->setup.v[keys[i]].n;
        if (!r->given[keys[i]] || n <= most)
            continue;
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, keys[i],
                        "%s %" PRIu64 " with %" PRIu64 " layers per stage",
                        setup_field(keys[i])->key, n, most);
        diag_hint(e, "use %" PRIu64 " at most", most);
    }
}

static void check_attention(const struct run *r, struct diag *d)
{
    if (r->deterministic && r->loss == LOSS_FUSED && resolve_is_megatron(r)) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_DETERMINISTIC,
                        "deterministic with loss 'fused', which Megatron "
                        "refuses");
        diag_hint(e, "leave one of the two out");
    }
    bool old = r->gpu.arch == ARCH_VOLTA || r->gpu.arch == ARCH_TURING;
    if (r->attention == ATTN_FLASH && old) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_ATTENTION,
            "attention 'flash' on %s, which FlashAttention does not support",
            r->gpu.name);
        diag_hint(e, "use --attention sdpa");
    }
}

/* ---- adapters, training run ---- */

/* Scales of scales are bitsandbytes' 4-bit formats'. */
static void check_double_quant(const struct run *r, struct diag *d)
{
    if (!r->double_quant || r->base_dtype == DT_NF4 || r->base_dtype == DT_FP4)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_DOUBLE_QUANT,
                    "double_quant with base_dtype '%s', which has no scales "
                    "to quantize",
                    dtype_name(r->base_dtype));
    diag_hint(e, "use --base-dtype nf4 or fp4, or leave it out");
}

static void check_lora(const struct run *r, struct diag *d)
{
    static const enum setup_key keys[] = {
        KEY_LORA_TARGETS, KEY_LORA_FULL_MODULES, KEY_LORA_DTYPE,
        KEY_BASE_DTYPE,   KEY_DOUBLE_QUANT,      KEY_LORA_DROPOUT,
    };
    if (r->lora_rank == 0) {
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
            if (r->given[keys[i]])
                pointless(d, keys[i], "lora_rank", "add --lora-rank 16");
        }
        return;
    }
    check_double_quant(r, d);
    bool framework = r->framework == FW_HF || r->framework == FW_DEEPSPEED
                     || r->framework == FW_FSDP;
    if ((framework && resolve_is_hf(r)) || r->impl == IMPL_TORCHTUNE)
        return;
    char buf[RESOLVE_TEXT_MAX];
    enum setup_key what = framework ? KEY_IMPLEMENTATION : KEY_FRAMEWORK;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_RANK,
                    "lora_rank with %s '%s' is not modelled yet",
                    setup_field(what)->key, resolve_text(r, what, buf));
    diag_hint(e, "use --framework hf, deepspeed or fsdp");
}

static void check_params(const struct run *r, struct diag *d)
{
    if (!r->given[KEY_PARAMS])
        return;
    memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_PARAMS,
                                   "params beside a model, which has its own");
    diag_hint(e, "leave one of the two out");
}

/* Three numbers, one equation: C = 6 N D. */
static void check_budget(const struct run *r, bool model, struct diag *d)
{
    if (!r->given[KEY_BUDGET] || !r->given[KEY_TOKENS]
        || (!model && !r->given[KEY_PARAMS]))
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_BUDGET,
                    "budget beside %s and tokens, which fix it: C = 6 N D",
                    model ? "a model" : "params");
    diag_hint(e, model ? "leave budget or tokens out"
                       : "leave one of the three out");
}

/* What `compute` can use without a model. */
static bool stands_alone(enum setup_key key)
{
    return key == KEY_GPU || key == KEY_GPUS || key == KEY_GPUS_PER_NODE
           || key == KEY_GPU_MEMORY || key == KEY_PRICE || key == KEY_PEAK_FLOPS
           || key == KEY_PRECISION || key == KEY_PARAMS || key == KEY_TOKENS
           || key == KEY_TOKENS_PER_PARAM || key == KEY_SCALING_LAW
           || key == KEY_MFU || key == KEY_AVAILABILITY || key == KEY_DAYS
           || key == KEY_BUDGET;
}

void resolve_check_alone(const struct run *r, struct diag *d)
{
    for (int k = 0; k < KEY_COUNT; k++) {
        enum setup_key key = (enum setup_key)k;
        if (!r->given[key] || stands_alone(key))
            continue;
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, key, "'%s' needs a model",
                        setup_field(key)->key);
        diag_hint(e, "name a model, or leave it out");
    }
    check_peak(r, d);
    check_budget(r, false, d);
}

void resolve_check(const struct run *r, const struct spec *spec, struct diag *d)
{
    check_modelled(r, d);
    check_split_layers(r, d);
    check_hf_family(r, spec, d);
    check_blocks(r, spec, d);
    check_liger(r, spec, d);
    check_zero(r, d);
    check_offload(r, d);
    check_galore(r, d);
    check_precision(r, d);
    check_tp(r, spec, d);
    check_experts(r, spec, d);
    check_sequence(r, spec, d);
    resolve_check_stacks(r, spec, d);
    resolve_check_mixers(r, spec, d);
    check_recompute(r, spec, d);
    check_attention(r, d);
    check_outputs(r, d);
    check_lora(r, d);
    check_params(r, d);
    check_budget(r, true, d);
}
