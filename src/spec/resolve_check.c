/*
 * Owns what cannot be: keys that contradict one another, the model or the
 * GPU, and the table of what is not modelled yet. Changes nothing.
 */
#include "spec/resolve.h"

#include "base/count.h"

#include <inttypes.h>

#include "base/banned.h"

/* Each is a score of operations in the program. */
enum { DBRX_EXPERTS_MAX = 256 };

/* ---- not modelled yet ---- */

/* Hugging Face layers run whole on each rank here. */
static void check_split_layers(const struct run *r, struct diag *d)
{
    static const enum setup_key keys[] = { KEY_TP, KEY_PP, KEY_CP, KEY_EP };
    char buf[RESOLVE_TEXT_MAX];
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (r->setup.v[keys[i]].n <= 1 || run_is_litgpt(r))
            continue;
        const bool engine = r->given[KEY_ENGINE];
        bool unsplit = keys[i] == KEY_PP && r->engine == ENGINE_FSDP;
        const bool spread =
            keys[i] == KEY_PP && r->engine == ENGINE_DDP; /* device_map */
        if ((!run_is_hf(r) && !unsplit) || (spread && run_spreads(r)))
            continue;
        if ((keys[i] == KEY_CP || keys[i] == KEY_TP) && run_is_hf(r))
            continue; /* resolve_check_ranks */
        enum setup_key what = run_is_hf(r) ? KEY_IMPLEMENTATION : KEY_ENGINE;
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, keys[i],
                        "%s %" PRIu64 " with %s '%s' is not modelled yet",
                        setup_field(keys[i])->key, r->setup.v[keys[i]].n,
                        setup_field(what)->key, resolve_text(r, what, buf));
        const char *other = spread ? "--schedule naive (device_map), or " : "";
        diag_hint(e, "use %s--framework megatron%s%s", other,
                  engine ? " --engine megatron" : "",
                  engine || keys[i] == KEY_EP ? "" : " or torchtitan");
    }
}

/* Liger replaces modules of models that it knows by name, and of these few
 * others than those here (liger_kernel/transformers/monkey_patch.py). */
static bool has_no_liger(const struct spec *s)
{
    static const enum family none[] = {
        FAM_GLM,        FAM_SEED_OSS,      FAM_MINISTRAL,   FAM_HUNYUAN,
        FAM_ERNIE,      FAM_OLMO3,         FAM_ERNIE_MOE,   FAM_DOTS1,
        FAM_NEMOTRON,   FAM_EXAONE4,       FAM_COHERE2,     FAM_MINICPM3,
        FAM_LLAMA4,     FAM_GROK,          FAM_PHI3SMALL,   FAM_DEEPSEEK_V32,
        FAM_DBRX,       FAM_PHIMOE,        FAM_MINISTRAL3,  FAM_CWM,
        FAM_JAIS2,      FAM_HYPERCLOVAX,   FAM_YOUTU,       FAM_MINIMAX_M2,
        FAM_SOLAR_OPEN, FAM_GLM4_MOE_LITE, FAM_FLEX_OLMO,   FAM_EXAONE_MOE,
        FAM_VAULTGEMMA, FAM_GRANITEMOES,   FAM_GRANITE_HYB, FAM_BAMBA,
    };
    return s->mixer != MIX_ATTENTION || IS_AMONG(s->family, none);
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

/* DBRX's class runs experts one after another, and adds rows up by index_add_,
 * which wants both of one type: under autocast over 16-bit weights they are
 * not. */
static void check_dbrx(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    if (!run_is_hf(r) || s->family != FAM_DBRX)
        return;
    memplan_error *e;
    if (s->experts > DBRX_EXPERTS_MAX) {
        e = setup_error(
            d, MEMPLAN_E_UNSUPPORTED, KEY_IMPLEMENTATION,
            "implementation 'hf' of a 'dbrx' model is modelled up to %d experts",
            DBRX_EXPERTS_MAX);
        diag_hint(e, "use --framework megatron");
    }
    const enum dtype weights = run_adapts(r) && r->base_dtype != DT_NONE
                                   ? r->base_dtype
                                   : r->prec.param;
    if (r->prec.autocast && weights != DT_FP32) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_PRECISION,
                        "transformers' DBRX under autocast over 16-bit weights "
                        "adds fp32 rows to 16-bit ones, which PyTorch refuses");
        diag_hint(e, "use --precision bf16");
    }
}

/* ---- the model ---- */

/* What does not come out even is answered with what divides the ranks, too.
 * `what`: one of them. */
static void uneven(const struct run *r, struct diag *d, enum setup_key key,
                   uint64_t n, const char *what)
{
    const uint64_t stage = r->gpus / r->pp;
    const uint64_t ranks = key == KEY_TP ? stage / r->cp : stage;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, key,
        "%" PRIu64 " %s%s not split over %s %" PRIu64, n, what,
        n == 1 ? " does" : "s do", setup_field(key)->key, r->setup.v[key].n);
    resolve_hint_divisors(e, r->given[KEY_GPUS] && ranks > 0 ? gcd_u64(n, ranks)
                                                             : n);
}

static void check_tp(const struct run *r, const struct spec *s, struct diag *d)
{
    uint64_t tp = r->tp;
    if (tp == 1 || spec_is_convnet(s)) /* refused as a whole */
        return;
    if (s->heads % tp != 0) {
        uneven(r, d, KEY_TP, s->heads, "attention head");
        return; /* the rest would say the same again */
    }
    /* Megatron gives several ranks a copy of one key-value head. */
    bool copied =
        s->kv_heads > 0 && tp % s->kv_heads == 0 && resolve_is_megatron(r);
    if (s->kv_heads % tp != 0 && !copied)
        uneven(r, d, KEY_TP, s->kv_heads, "key-value head");
    if (s->hidden % tp != 0)
        uneven(r, d, KEY_TP, s->hidden, "hidden channel");
    if (s->ffn % tp != 0)
        uneven(r, d, KEY_TP, s->ffn, "feed-forward channel");
    if (s->shared_ffn % tp != 0)
        uneven(r, d, KEY_TP, s->shared_ffn, "shared-expert channel");
    if (r->vocab % tp == 0 || !resolve_is_megatron(r))
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_VOCAB_MULTIPLE,
                    "vocabulary of %" PRIu64 " does not split over tp %" PRIu64,
                    r->vocab, tp);
    diag_hint(e, "use --vocab-multiple %" PRIu64 ", Megatron's own", 128 * tp);
}

/* A rank cannot get more than the tokens of all ranks of its group. */
static void check_routing(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    if (r->ep > 1 && r->moe_imbalance > (double)r->ep) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_MOE_IMBALANCE,
                        "moe_imbalance %g with ep %" PRIu64
                        ": one rank would get more than all tokens",
                        r->moe_imbalance, r->ep);
        diag_hint(e, "use --moe-imbalance %" PRIu64 " or less", r->ep);
    }
    if (r->moe_padded && !(r->moe_capacity > 0) && resolve_is_megatron(r)
        && s->experts > 0) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_MOE_PAD_TO_CAPACITY,
                        "moe_pad_expert_input_to_capacity without a capacity");
        diag_hint(e, "add --moe-expert-capacity-factor 1.0");
    }
    /* core/transformer/transformer_config.py */
    if (r->moe_padded && r->moe_dispatcher == DISPATCH_FLEX && s->experts > 0) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_MOE_PAD_TO_CAPACITY,
                        "moe_pad_expert_input_to_capacity with moe_dispatcher "
                        "'flex', which Megatron refuses");
        diag_hint(e, "use --moe-dispatcher alltoall, or leave it out");
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
        uneven(r, d, KEY_EP, s->experts, "expert");
    }
    const uint64_t ffn = s->expert_ffn == 0 ? s->ffn : s->expert_ffn;
    if (ffn % r->etp != 0)
        uneven(r, d, KEY_ETP, ffn, "expert channel");
    if (s->experts > 0)
        check_routing(r, s, d);
}

/* What is put before the data, or stands for keys there, has the first places
 * (peft_model.py; a model's position_ids go on from its cache). */
static void check_virtual(const struct run *r, uint64_t limit, struct diag *d)
{
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_SEQ_LEN,
        "seq_len %" PRIu64 " after %" PRIu64
        " virtual tokens is beyond the model's %" PRIu64 " learned positions",
        r->seq_len, r->virtual_tokens, limit);
    if (r->virtual_tokens < limit)
        diag_hint(e, "use --seq-len %" PRIu64 " or less",
                  limit - r->virtual_tokens);
    else
        diag_hint(e, "use fewer --num-virtual-tokens");
}

static void check_sequence(const struct run *r, const struct spec *s,
                           struct diag *d)
{
    uint64_t limit =
        s->max_positions > 0 ? s->max_positions : s->learned_positions;
    memplan_error *e = NULL;
    /* of an image or a spectrum: check_image */
    const bool is_text = s->channels == 0 && s->mel_bins == 0;
    const bool learned = is_text && s->position == POS_LEARNED && limit > 0;
    if (learned && r->seq_len > limit) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_SEQ_LEN,
                        "seq_len %" PRIu64 " is beyond the model's %" PRIu64
                        " learned positions",
                        r->seq_len, limit);
        diag_hint(e, "use --seq-len %" PRIu64 " or less", limit);
    } else if (learned && !s->bidirectional
               && r->virtual_tokens > limit - r->seq_len) {
        check_virtual(r, limit, d);
    }
    /* A causal mask is balanced by giving each rank two chunks, one from
     * either end. Sequence parallelism splits what is left over tp. */
    uint64_t unit = r->cp > 1 ? 2 * r->cp : 1;
    const char *what = "2 x cp";
    if (run_exchanges_heads(r)) { /* every rank has all of them in turn */
        unit = r->cp;
        what = "cp";
    }
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

/* PEFT finds such an expert's matrices as it does all others. */
static void check_adapted_experts(const struct run *r, struct diag *d)
{
    const uint64_t on = r->lora_targets;
    if (r->lora_rank == 0
        || ((on >> LORA_GATE | on >> LORA_UP | on >> LORA_DOWN
             | on >> LORA_ALL_LINEAR)
            & 1)
               == 0)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_TARGETS,
                    "adapters of linear_experts are not modelled yet");
    diag_hint(e, "use --lora-targets q,k,v,o");
}

/* What else has experts, and other formats, packs them or does not. */
static void check_linear_experts(const struct run *r, const struct spec *s,
                                 struct diag *d)
{
    struct run fused = *r;
    fused.linear_experts = false;
    if (!r->linear_experts)
        return;
    if (s->experts > 0 && run_keeps_experts(&fused)) {
        check_adapted_experts(r, d);
        return;
    }
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_LINEAR_EXPERTS,
        "linear_experts without experts under bitsandbytes' 4 or 8 bits");
    diag_hint(e, s->experts > 0 ? "use --base-dtype nf4, fp4 or int8 under "
                                  "Hugging Face's layers, or leave it out"
                                : "leave it out");
}

static void check_kbit_cast(const struct run *r, struct diag *d)
{
    if (!r->given[KEY_KBIT_CAST] || dtype_is_quantised(r->base_dtype))
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_KBIT_CAST,
        "kbit_cast with base_dtype '%s', over which nothing is cast",
        dtype_name(r->base_dtype));
    diag_hint(e, "use --base-dtype nf4, fp4, int8 or int4, or leave it out");
}

static void check_gptq_kernel(const struct run *r, struct diag *d)
{
    if (!r->given[KEY_GPTQ_KERNEL] || r->base_dtype == DT_INT4)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_GPTQ_KERNEL,
                    "gptq_kernel with base_dtype '%s', which is not GPTQ's",
                    dtype_name(r->base_dtype));
    diag_hint(e, "use --base-dtype int4, or leave it out");
}

/* Their routers are linears that give three tensors: PEFT's all-linear wraps
 * them, and fails at the first forward. */
static void check_router_adapters(const struct run *r, const struct spec *s,
                                  struct diag *d)
{
    const bool llama4 = s->family == FAM_LLAMA4 && s->experts > 0;
    if (!run_is_hf(r) || !run_adapts(r) || (!llama4 && s->family != FAM_PHIMOE)
        || (r->lora_targets >> LORA_ALL_LINEAR & 1) == 0)
        return;
    memplan_error *e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_TARGETS,
                                   "PEFT's all-linear adapts the router of a "
                                   "'%s' model, which then fails",
                                   s->model_type);
    diag_hint(e, "use --lora-targets q,k,v,o%s", llama4 ? ",gate,up,down" : "");
}

/* lora.ParamWrapper has no dropout, and gate and up are one weight. */
static void check_fused_adapters(const struct run *r, const struct spec *s,
                                 struct diag *d)
{
    const uint64_t on = r->lora_targets;
    const uint64_t all = on >> LORA_ALL_LINEAR & 1;
    const bool gate = on >> LORA_GATE & 1, up = on >> LORA_UP & 1;
    if (!run_is_hf(r) || !run_adapts(r) || !spec_translates_targets(s)
        || (dtype_is_quantised(r->base_dtype) && !run_keeps_experts(r)))
        return;
    memplan_error *e;
    if (!all && gate != up) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_LORA_TARGETS,
                        "gate and up are one weight of a '%s' model's experts, "
                        "and PEFT adapts both or none",
                        s->model_type);
        diag_hint(e, "name both, or leave both out");
    }
    if (r->lora_dropout > 0 && (all || up || (on >> LORA_DOWN & 1) != 0)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_LORA_DROPOUT,
                        "PEFT has no dropout for adapters of fused experts");
        diag_hint(e, "use --lora-dropout 0, or --lora-targets q,k,v,o");
    }
}

/* PEFT's of plain linears alone: torchtune's and others' differ, experts and
 * AutoGPTQ's layers have none in PEFT (lora/layer.py, ParamWrapper). */
static void check_dora(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    if (r->lora_rank == 0 || r->lora_variant != LORA_VARIANT_DORA)
        return;
    const char *what = !run_is_hf(r) || run_is_litgpt(r)
                           ? "outside Hugging Face's layers"
                       : s->experts > 0            ? "of a model with experts"
                       : s->mixer != MIX_ATTENTION ? "of state-space layers"
                       : r->tp > 1                 ? "with tp"
                       : r->base_dtype == DT_INT4 || r->base_dtype == DT_INT8
                           ? "over int8 or int4 weights"
                           : NULL;
    if (what == NULL)
        return;
    memplan_error *e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_VARIANT,
                                   "lora_variant 'dora' %s is not modelled "
                                   "yet",
                                   what);
    diag_hint(e, "use --lora-variant lora");
}

void resolve_hint_whole(const struct run *r, memplan_error *e)
{
    static const enum setup_key keys[] = { KEY_TP, KEY_PP, KEY_CP, KEY_EP };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (r->setup.v[keys[i]].n > 1)
            str_append(e->hint, sizeof(e->hint), " and --%s 1",
                       setup_field(keys[i])->key);
    }
}

void resolve_hint_adapters(const struct run *r, memplan_error *e)
{
    diag_hint(e, "use --framework hf, deepspeed or fsdp");
    resolve_hint_whole(r, e);
}

/* ZeRO-1 and -2 flatten what is trained, in the type that all of it has
 * together: modules in full are cast beneath what computes with them
 * (stage_1_and_2.py, _update_model_bit16_weights); ZeRO-3 wants one type
 * (zero/utils.py, defragment). Where DeepSpeed casts, there is one. */
static void check_one_type(const struct run *r, struct diag *d)
{
    const enum dtype full = run_unquantised_dtype(r);
    const bool half = r->precision == PREC_BF16_MIXED
                      || r->precision == PREC_FP16_MIXED
                      || r->precision == PREC_BF16 || r->precision == PREC_FP16;
    const bool casts = half && r->zero != 3;
    if (r->engine != ENGINE_DEEPSPEED || r->zero == 0 || r->lora_full == 0
        || full == r->prec.param || casts)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_FULL_MODULES,
                    "lora_full_modules in %s beside adapters in %s: ZeRO's "
                    "flat buffers have one type",
                    dtype_name(full), dtype_name(r->prec.param));
    diag_hint(e, "use --lora-dtype %s, or --zero 0", dtype_name(full));
}

/* PEFT's, torchtune's, Megatron-Bridge's. */
static void check_whose_adapters(const struct run *r, struct diag *d)
{
    const bool hf = r->framework == FW_HF || r->framework == FW_DEEPSPEED
                    || r->framework == FW_FSDP;
    const bool megatron =
        r->framework == FW_MEGATRON || r->framework == FW_NEMO;
    const bool bridge = megatron && run_has_bridge_adapters(r);
    if ((hf && run_is_hf(r)) || r->impl == IMPL_TORCHTUNE
        || (bridge && r->engine == ENGINE_MEGATRON))
        return;
    char buf[RESOLVE_TEXT_MAX];
    const enum setup_key what = bridge           ? KEY_ENGINE
                                : hf || megatron ? KEY_IMPLEMENTATION
                                                 : KEY_FRAMEWORK;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_RANK,
                    "lora_rank with %s '%s' is not modelled yet",
                    setup_field(what)->key, resolve_text(r, what, buf));
    if (bridge && !r->given[KEY_ENGINE])
        diag_hint(e, "use --zero 1");
    else if (megatron && !bridge)
        diag_hint(e, "use --implementation megatron");
    else
        resolve_hint_adapters(r, e);
}

/* What makes a key of adapters one that has an effect. */
static const char *hint_rank(const struct run *r, enum setup_key key)
{
    const bool base = r->given[KEY_BASE_DTYPE];
    if (key == KEY_LAYERS_TO_TRANSFORM)
        return "add --lora-rank 16 --lora-targets q,v";
    if (key == KEY_LINEAR_EXPERTS)
        return base ? "add --lora-rank 16 --lora-targets q,k,v,o"
                    : "add --lora-rank 16 --base-dtype nf4 --lora-targets "
                      "q,k,v,o";
    return key == KEY_DOUBLE_QUANT && !base
               ? "add --lora-rank 16 --base-dtype nf4"
               : "add --lora-rank 16";
}

static void check_lora(const struct run *r, struct diag *d)
{
    static const enum setup_key keys[] = {
        KEY_LORA_VARIANT,   KEY_LORA_TARGETS,        KEY_LORA_FULL_MODULES,
        KEY_LORA_DTYPE,     KEY_BASE_DTYPE,          KEY_DOUBLE_QUANT,
        KEY_KBIT_CAST,      KEY_GPTQ_KERNEL,         KEY_LORA_DROPOUT,
        KEY_RANK_PATTERN,   KEY_LAYERS_TO_TRANSFORM, KEY_ENSURE_WEIGHT_TYING,
        KEY_LINEAR_EXPERTS,
    };
    if (r->peft != PEFT_LORA) {
        check_double_quant(r, d);
        check_kbit_cast(r, d);
        check_gptq_kernel(r, d);
        return;
    }
    if (r->lora_rank == 0) {
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
            if (r->given[keys[i]])
                resolve_pointless(d, keys[i], "lora_rank",
                                  hint_rank(r, keys[i]));
        }
        return;
    }
    check_double_quant(r, d);
    check_one_type(r, d);
    check_kbit_cast(r, d);
    check_gptq_kernel(r, d);
    check_whose_adapters(r, d);
}

static void check_params(const struct run *r, struct diag *d)
{
    if (!r->given[KEY_PARAMS])
        return;
    memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_PARAMS,
                                   "params beside a model, which has its own");
    diag_hint(e, "leave it out");
}

static void check_has_law(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    static const enum setup_key keys[] = { KEY_BUDGET, KEY_TARGET_LOSS,
                                           KEY_UNIQUE_TOKENS,
                                           KEY_INFERENCE_TOKENS };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!r->given[keys[i]] || (spec_is_language(s) && !run_adapts(r)))
            continue;
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, keys[i],
                        "%s belongs to scaling laws, with C = 6 N D, which "
                        "hold for %s",
                        setup_field(keys[i])->key,
                        spec_is_language(s)
                            ? "models trained from the start, not for adapters"
                            : "language models");
        diag_hint(e, "leave it out, and give --tokens");
    }
}

/* A loss fixes what nothing else does. */
static void check_loss(const struct run *r, bool model, struct diag *d)
{
    if (!r->given[KEY_TARGET_LOSS])
        return;
    const bool sized = model || r->given[KEY_PARAMS];
    memplan_error *e;
    if (r->given[KEY_BUDGET]) {
        e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_TARGET_LOSS,
            "target_loss beside budget: one follows from the other");
        diag_hint(e, "leave one of the two out");
    } else if (sized && r->given[KEY_TOKENS]) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_TARGET_LOSS,
                        "target_loss beside %s and tokens, which fix it",
                        model ? "a model" : "params");
        diag_hint(e, "leave tokens out");
    }
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
    diag_hint(e, model ? "leave budget out, or leave tokens out"
                       : "leave one of the three out");
}

/* What `compute` can use without a model. */
static bool stands_alone(enum setup_key key)
{
    return key == KEY_GPU || key == KEY_GPUS || key == KEY_GPUS_PER_NODE
           || key == KEY_GPU_MEMORY || key == KEY_PRICE || key == KEY_PEAK_FLOPS
           || key == KEY_INTRA_NODE_BANDWIDTH || key == KEY_INTER_NODE_BANDWIDTH
           || key == KEY_PRECISION || key == KEY_PARAMS || key == KEY_TOKENS
           || key == KEY_TOKENS_PER_PARAM || key == KEY_SCALING_LAW
           || key == KEY_MFU || key == KEY_AVAILABILITY || key == KEY_DAYS
           || key == KEY_BUDGET || key == KEY_TARGET_LOSS
           || key == KEY_UNIQUE_TOKENS || key == KEY_INFERENCE_TOKENS;
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
    resolve_check_peak(r, d);
    check_budget(r, false, d);
    check_loss(r, false, d);
}

void resolve_check(const struct run *r, const struct spec *spec, struct diag *d)
{
    check_split_layers(r, d);
    resolve_check_litgpt(r, d);
    resolve_check_ranks(r, spec, d);
    resolve_check_schedule(r, spec, d);
    resolve_check_ep_overlap(r, spec, d);
    resolve_check_graphs(r, spec, d);
    check_dbrx(r, spec, d);
    check_blocks(r, spec, d);
    check_liger(r, spec, d);
    resolve_check_zero(r, d);
    resolve_check_offload(r, spec, d);
    resolve_check_projection(r, spec, d);
    resolve_check_precision(r, d);
    resolve_check_fp8(r, spec, d);
    check_tp(r, spec, d);
    check_experts(r, spec, d);
    check_sequence(r, spec, d);
    resolve_check_lengths(r, spec, d);
    resolve_check_stacks(r, spec, d);
    resolve_check_mixers(r, spec, d);
    resolve_check_recompute(r, spec, d);
    resolve_check_away(r, spec, d);
    resolve_check_attention(r, spec, d);
    resolve_check_outputs(r, d);
    check_lora(r, d);
    resolve_check_adapters(r, spec, d);
    resolve_check_bridge(r, spec, d);
    check_dora(r, spec, d);
    check_router_adapters(r, spec, d);
    check_linear_experts(r, spec, d);
    check_fused_adapters(r, spec, d);
    check_params(r, d);
    if (spec_is_language(spec))
        check_budget(r, true, d);
    check_loss(r, true, d);
    check_has_law(r, spec, d);
}
