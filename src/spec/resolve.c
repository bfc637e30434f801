/*
 * Owns the defaults of a setup: GPU, framework, number formats, optimizer,
 * kernels, adapters. Each default that matters is said in an assumption with
 * the option that changes it. Refuses to know layout and training run
 * (resolve_layout.c, resolve_training.c), and to reject: what cannot be
 * together is found in resolve_layout.c and resolve_check.c.
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "data/constants.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/banned.h"

/* ---- tools ---- */

uint64_t resolve_count(struct run *r, enum setup_key key, uint64_t fallback)
{
    if (!r->setup.set[key]) {
        r->setup.v[key].n = fallback;
        r->setup.set[key] = true;
    }
    return r->setup.v[key].n;
}

double resolve_real(struct run *r, enum setup_key key, double fallback)
{
    if (!r->setup.set[key]) {
        r->setup.v[key].x = fallback;
        r->setup.set[key] = true;
    }
    return r->setup.v[key].x;
}

bool resolve_bool(struct run *r, enum setup_key key, bool fallback)
{
    return resolve_count(r, key, fallback) != 0;
}

uint64_t resolve_force(struct run *r, enum setup_key key, uint64_t value)
{
    r->setup.v[key].n = value;
    r->setup.set[key] = true;
    return value;
}

static void add_assumption(struct run *r, enum setup_key key,
                           const char *format, va_list args)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 0)))
#endif
    ;
static void add_assumption(struct run *r, enum setup_key key,
                           const char *format, va_list args)
{
    if (r->n_assumptions == ASSUMPTION_MAX)
        return;
    struct assumption *a = &r->assumption[r->n_assumptions++];
    a->key = key;
    str_vformat(a->text, sizeof(a->text), format, args);
}

void resolve_assume(struct run *r, enum setup_key key, const char *format, ...)
{
    if (r->given[key])
        return;
    va_list args;
    va_start(args, format);
    add_assumption(r, key, format, args);
    va_end(args);
}

void run_assume(struct run *run, enum setup_key key, const char *text)
{
    resolve_note(run, key, "%s", text);
}

void resolve_note(struct run *r, enum setup_key key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_assumption(r, key, format, args);
    va_end(args);
}

const char *resolve_text(const struct run *r, enum setup_key key,
                         char buf[RESOLVE_TEXT_MAX])
{
    return setup_value_text(&r->setup, key, buf, RESOLVE_TEXT_MAX);
}

bool resolve_is_fsdp(const struct run *r)
{
    return r->engine == ENGINE_FSDP || r->engine == ENGINE_FSDP2;
}

bool resolve_is_megatron(const struct run *r)
{
    return r->impl == IMPL_MEGATRON || r->impl == IMPL_MEGATRON_LOCAL;
}

bool resolve_is_litgpt(const struct run *r)
{
    return resolve_is_hf(r) && r->given[KEY_LOSS]
           && r->setup.v[KEY_LOSS].n == LOSS_CHUNKED;
}

bool resolve_is_hf(const struct run *r)
{
    return r->impl == IMPL_HF || r->impl == IMPL_HF_LIGER;
}

bool run_pipelines(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED && run->impl == IMPL_MEGATRON_LOCAL
           && run->framework == FW_MEGATRON_DEEPSPEED && run->zero <= 1;
}

bool run_flattens(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED && !run_pipelines(run)
           && (run->zero == 1 || run->zero == 2) && run->prec.master != DT_NONE;
}

/* DeepSpeed sets them to None whatever it is told (engine.py, zero_grad),
 * Megatron's are a permanent buffer. */
bool run_keeps_grads(const struct run *run)
{
    return run->zeroes_grads
           && (run->engine == ENGINE_DDP
               || (resolve_is_fsdp(run)
                   && run->offload_params == OFFLOAD_NONE));
}

bool run_is_bf16_pipeline(const struct run *run)
{
    return run_pipelines(run) && run->zero == 0 && run->prec.param == DT_BF16
           && run->prec.master == DT_FP32;
}

static bool above_one(const struct run *r, enum setup_key key)
{
    return r->given[key] && r->setup.v[key].n > 1;
}

/* ---- GPU ---- */

static const char DEFAULT_GPU[] = "a100-80gb";
enum { DEFAULT_GPUS_PER_NODE = 8 }; /* DGX, HGX and what clouds rent */

static uint64_t default_gpu_index(void)
{
    const struct gpu *gpu = gpu_find(DEFAULT_GPU, sizeof(DEFAULT_GPU) - 1);
    return gpu ? (uint64_t)(gpu - gpu_at(0)) : 0;
}

static void resolve_gpu(struct run *r)
{
    uint64_t index =
        r->given[KEY_GPU] ? r->setup.v[KEY_GPU].n : default_gpu_index();
    const struct gpu *gpu = gpu_at((size_t)index);
    r->gpu = gpu ? *gpu : *gpu_at(0);
    resolve_count(r, KEY_GPU, index);
    resolve_assume(r, KEY_GPU, "GPU %s (--gpu)", r->gpu.name);

    if (r->given[KEY_GPU_MEMORY]) {
        r->gpu.visible_bytes = r->setup.v[KEY_GPU_MEMORY].n;
        r->gpu.memory_bytes = r->gpu.visible_bytes;
    }
    r->capacity_bytes = resolve_count(r, KEY_GPU_MEMORY, r->gpu.visible_bytes);
    r->gpus_per_node =
        resolve_count(r, KEY_GPUS_PER_NODE, DEFAULT_GPUS_PER_NODE);
}

static bool has_flash(enum gpu_arch arch)
{
    switch (arch) {
    case ARCH_VOLTA:
    case ARCH_TURING: return false; /* FlashAttention 2 begins at Ampere */
    case ARCH_AMPERE:
    case ARCH_ADA:
    case ARCH_HOPPER:
    case ARCH_BLACKWELL:
    case ARCH_CDNA2: /* its ROCm port at the MI200 series */
    case ARCH_CDNA3:
    case ARCH_CDNA4: return true;
    }
    return false;
}

/* ---- framework ---- */

static const struct preset {
    enum implementation impl;
    enum engine engine;
    const char *what;
} presets[FRAMEWORK_COUNT] = {
    [FW_HF] = { IMPL_HF, ENGINE_DDP, "Hugging Face layers, plain DDP" },
    [FW_DEEPSPEED] = { IMPL_HF, ENGINE_DEEPSPEED,
                       "Hugging Face layers, DeepSpeed" },
    [FW_FSDP] = { IMPL_HF, ENGINE_FSDP, "Hugging Face layers, FSDP" },
    [FW_TORCHTITAN] = { IMPL_TORCHTITAN, ENGINE_FSDP2,
                        "torchtitan layers, FSDP2" },
    [FW_MEGATRON] = { IMPL_MEGATRON, ENGINE_MEGATRON,
                      "Megatron Core, Transformer Engine" },
    [FW_MEGATRON_DEEPSPEED] = { IMPL_MEGATRON, ENGINE_DEEPSPEED,
                                "Megatron layers, DeepSpeed" },
    [FW_TORCHTUNE] = { IMPL_TORCHTUNE, ENGINE_FSDP2, "torchtune" },
    [FW_NEMO] = { IMPL_MEGATRON, ENGINE_MEGATRON, "NeMo on Megatron Core" },
};

static bool impl_given_as(const struct run *r, enum implementation impl)
{
    return r->given[KEY_IMPLEMENTATION]
           && r->setup.v[KEY_IMPLEMENTATION].n == impl;
}

static bool megatron_code_given(const struct run *r)
{
    return impl_given_as(r, IMPL_MEGATRON)
           || impl_given_as(r, IMPL_MEGATRON_LOCAL)
           || impl_given_as(r, IMPL_PAPER);
}

/* The framework whose parts the user named, else the rule of the manual:
 * megatron for model parallelism, deepspeed for ZeRO, else hf. */
static enum framework default_framework(const struct run *r)
{
    if (r->given[KEY_ENGINE]) {
        switch ((enum engine)r->setup.v[KEY_ENGINE].n) {
        case ENGINE_DDP: return FW_HF;
        case ENGINE_DEEPSPEED:
            return megatron_code_given(r) ? FW_MEGATRON_DEEPSPEED
                                          : FW_DEEPSPEED;
        case ENGINE_FSDP: return FW_FSDP;
        case ENGINE_FSDP2: return FW_TORCHTITAN;
        case ENGINE_MEGATRON:
        case ENGINE_MEGATRON_FSDP: return FW_MEGATRON;
        case ENGINE_COUNT: break;
        }
    }
    if (megatron_code_given(r))
        return FW_MEGATRON;
    if (impl_given_as(r, IMPL_TORCHTITAN))
        return FW_TORCHTITAN;
    if (impl_given_as(r, IMPL_TORCHTUNE))
        return FW_TORCHTUNE;
    if (above_one(r, KEY_TP) || above_one(r, KEY_PP) || above_one(r, KEY_CP)
        || above_one(r, KEY_EP))
        return FW_MEGATRON;
    return r->given[KEY_ZERO] ? FW_DEEPSPEED : FW_HF;
}

static uint64_t default_zero(enum engine engine)
{
    switch (engine) {
    case ENGINE_FSDP:
    case ENGINE_FSDP2:
    case ENGINE_MEGATRON_FSDP: return 3; /* reshard_after_forward */
    case ENGINE_MEGATRON: return 1;      /* --use-distributed-optimizer */
    case ENGINE_DDP:
    case ENGINE_DEEPSPEED:
    case ENGINE_COUNT: return 0;
    }
    return 0;
}

static void resolve_framework(struct run *r)
{
    r->framework =
        (enum framework)resolve_count(r, KEY_FRAMEWORK, default_framework(r));
    const struct preset *p = &presets[r->framework];
    r->impl =
        (enum implementation)resolve_count(r, KEY_IMPLEMENTATION, p->impl);
    /* torchtune has no other layers than its own, kin of torchtitan's */
    if (r->framework == FW_TORCHTUNE && r->impl == IMPL_TORCHTITAN) {
        resolve_force(r, KEY_IMPLEMENTATION, IMPL_TORCHTUNE);
        r->impl = IMPL_TORCHTUNE;
        resolve_note(r, KEY_IMPLEMENTATION,
                     "torchtune's own layers, which are kin of torchtitan's "
                     "(--implementation)");
    }
    r->engine = (enum engine)resolve_count(r, KEY_ENGINE, p->engine);
    r->zero = resolve_count(r, KEY_ZERO, default_zero(r->engine));
    if (r->engine == ENGINE_MEGATRON && r->zero == 3) {
        /* --data-parallel-sharding-strategy optim_grads_params */
        r->engine =
            (enum engine)resolve_force(r, KEY_ENGINE, ENGINE_MEGATRON_FSDP);
        resolve_note(r, KEY_ENGINE,
                     "Megatron's stage 3 is Megatron-FSDP (--engine)");
    }
}

static void say_framework(struct run *r)
{
    char buf[RESOLVE_TEXT_MAX];
    if (!r->given[KEY_IMPLEMENTATION] || !r->given[KEY_ENGINE])
        resolve_assume(r, KEY_FRAMEWORK, "framework %s: %s (--framework)",
                       resolve_text(r, KEY_FRAMEWORK, buf),
                       presets[r->framework].what);
    if (r->zero > 0)
        resolve_assume(r, KEY_ZERO,
                       "ZeRO stage %" PRIu64 ", usual with %s (--zero)",
                       r->zero, resolve_text(r, KEY_ENGINE, buf));
}

/* ---- precision ---- */

static const struct formats {
    enum dtype param, compute, master;
    bool autocast, fp8;
} formats[PRECISION_COUNT] = {
    [PREC_BF16_MIXED] = { DT_BF16, DT_BF16, DT_FP32, false, false },
    [PREC_FP16_MIXED] = { DT_FP16, DT_FP16, DT_FP32, false, false },
    [PREC_BF16_AMP] = { DT_FP32, DT_BF16, DT_NONE, true, false },
    [PREC_FP16_AMP] = { DT_FP32, DT_FP16, DT_NONE, true, false },
    [PREC_BF16] = { DT_BF16, DT_BF16, DT_NONE, false, false },
    [PREC_FP16] = { DT_FP16, DT_FP16, DT_NONE, false, false },
    [PREC_FP32] = { DT_FP32, DT_FP32, DT_NONE, false, false },
    [PREC_TF32] = { DT_FP32, DT_FP32, DT_NONE, false, false },
    [PREC_FP8_MIXED] = { DT_BF16, DT_BF16, DT_FP32, false, true },
    [PREC_FP4_MIXED] = { DT_BF16, DT_BF16, DT_FP32, false, true },
};

/* Jamba's scan refuses autocast (resolve_mixers.c). */
static enum precision default_precision(const struct run *r,
                                        const struct spec *spec)
{
    bool bf16 = r->gpu.peak_bf16_flop_s > 0;
    if (r->framework == FW_HF && spec && spec->ssm.norms)
        return bf16 ? PREC_BF16 : PREC_FP16;
    if (r->framework == FW_HF)
        return bf16 ? PREC_BF16_AMP : PREC_FP16_AMP;
    return bf16 ? PREC_BF16_MIXED : PREC_FP16_MIXED;
}

/* Moments of the quantizing optimizers are what their name says. */
static enum dtype moments(enum optimizer o, enum dtype otherwise)
{
    if (o == OPT_ADAM8BIT || o == OPT_PAGED_ADAM8BIT || o == OPT_LION8BIT)
        return DT_INT8;
    if (o == OPT_ADAM4BIT)
        return DT_INT4;
    return o == OPT_NONE ? DT_NONE : otherwise;
}

/* FSDP keeps one copy, the shards, and gathers another dtype than it stores:
 * what elsewhere is the master copy is the parameter there. */
static void formats_of_fsdp(struct run *r, struct precision_bytes *p)
{
    if (p->master != DT_NONE) {
        p->param = p->master;
        p->master = DT_NONE;
    }
    p->grad = p->param; /* sharded gradients are cast to the stored dtype */
    if (r->given[KEY_PARAM_DTYPE])
        p->compute = (enum dtype)r->setup.v[KEY_PARAM_DTYPE].n;
    resolve_count(r, KEY_PARAM_DTYPE, p->autocast ? p->param : p->compute);

    /* MixedPrecisionPolicy: without a reduce_dtype gradients are reduced as
     * they were computed; torchtitan's configuration sets fp32. */
    bool titan = r->impl == IMPL_TORCHTITAN && p->param == DT_FP32;
    enum dtype wire = titan ? DT_FP32 : p->compute;
    p->reduce = p->autocast ? p->param : wire;
}

static void formats_elsewhere(struct run *r, struct precision_bytes *p)
{
    if (r->given[KEY_PARAM_DTYPE]) {
        p->param = (enum dtype)r->setup.v[KEY_PARAM_DTYPE].n;
        if (p->param == DT_FP32) { /* it needs no master copy */
            p->master = DT_NONE;
            p->autocast = p->compute != DT_FP32;
        }
    }
    resolve_count(r, KEY_PARAM_DTYPE, p->param);
    /* Megatron's arguments.py accumulates in fp32 whenever bf16 trains. */
    bool fp32 =
        (r->engine == ENGINE_MEGATRON || r->engine == ENGINE_MEGATRON_FSDP)
        && p->master == DT_FP32 && p->param == DT_BF16;
    p->grad = fp32 || run_is_bf16_pipeline(r) ? DT_FP32 : p->param;
    p->reduce = fp32 ? DT_FP32 : p->param;
}

static enum dtype dtype_or(struct run *r, enum setup_key key, enum dtype t)
{
    return (enum dtype)resolve_count(r, key, t);
}

static void resolve_precision(struct run *r, const struct spec *spec)
{
    r->precision = (enum precision)resolve_count(r, KEY_PRECISION,
                                                 default_precision(r, spec));
    r->optimizer = (enum optimizer)resolve_count(r, KEY_OPTIMIZER, OPT_ADAMW);

    const struct formats *f = &formats[r->precision];
    struct precision_bytes *p = &r->prec;
    p->param = f->param;
    p->compute = f->compute;
    p->master = f->master;
    p->autocast = f->autocast;
    p->fp8 = f->fp8;
    if (resolve_is_fsdp(r))
        formats_of_fsdp(r, p);
    else
        formats_elsewhere(r, p);
    enum dtype states = p->master == DT_NONE ? p->param : DT_FP32;

    bool grad_given = r->given[KEY_GRAD_DTYPE];
    p->grad = dtype_or(r, KEY_GRAD_DTYPE, p->grad);
    /* DeepSpeed's communication type stays the model's (engine.py,
     * communication_data_type), FSDP's is a key of its own. */
    if (grad_given && !resolve_is_fsdp(r) && r->engine != ENGINE_DEEPSPEED)
        p->reduce = p->grad;
    p->reduce = dtype_or(r, KEY_REDUCE_DTYPE, p->reduce);
    p->master = dtype_or(r, KEY_MASTER_DTYPE, p->master);
    if (resolve_is_fsdp(r) && p->master == p->param)
        p->master = DT_NONE; /* the shards are it */
    p->optim = dtype_or(r, KEY_OPTIMIZER_DTYPE, moments(r->optimizer, states));
    if (p->fp8)
        r->fp8_recipe = (enum fp8_recipe)resolve_count(
            r, KEY_FP8_RECIPE,
            r->impl == IMPL_TORCHTITAN ? FP8_TENSORWISE : FP8_DELAYED);
    resolve_bool(r, KEY_FP8_PARAMS, false);
}

static const char *precision_meaning(const struct run *r)
{
    if (r->prec.autocast)
        return "32-bit weights under autocast";
    if (r->prec.master == DT_FP32)
        return "16-bit weights with a 32-bit master copy";
    if (r->prec.compute != DT_FP32 && r->prec.param == DT_FP32)
        return "32-bit shards, gathered in 16 bits";
    return "one dtype throughout";
}

static void say_precision(struct run *r)
{
    char buf[RESOLVE_TEXT_MAX];
    resolve_assume(r, KEY_PRECISION, "precision %s: %s (--precision)",
                   resolve_text(r, KEY_PRECISION, buf), precision_meaning(r));
}

static void say_emulation(struct run *r)
{
    if (r->prec.compute == DT_BF16 && r->gpu.peak_bf16_flop_s <= 0)
        resolve_note(r, KEY_PRECISION,
                     "bf16 is emulated on %s, at fp32 speed (--precision)",
                     r->gpu.name);
}

/* ---- optimizer ---- */

/* What each framework runs when told nothing: transformers' TrainingArguments
 * optim="adamw_torch_fused" (under FSDP too), DeepSpeed's FusedAdam,
 * torchtitan's implementation="fused", Transformer Engine's FusedAdam in
 * Megatron. None asks for a fused RMSprop or Adagrad, and torch has none on
 * GPUs: there torch's own default applies, foreach. SGD's foreach makes no
 * list, so that it counts as fused. */
static enum optimizer_impl default_optimizer_impl(const struct run *r)
{
    switch (r->optimizer) {
    case OPT_ADAMW:
    case OPT_SGD:
    case OPT_MOMENTUM: /* LitGPT says nothing, so that PyTorch chooses */
        return resolve_is_litgpt(r) ? OPTIMPL_FOREACH : OPTIMPL_FUSED;
    case OPT_ADAGRAD:
    case OPT_RMSPROP: return OPTIMPL_FOREACH;
    case OPT_ADAFACTOR:
    case OPT_MUON:
    case OPT_GALORE: return OPTIMPL_LOOP;
    case OPT_ADAM8BIT: /* bitsandbytes, DeepSpeed, torchao: own kernels */
    case OPT_PAGED_ADAM8BIT:
    case OPT_LION:
    case OPT_LION8BIT:
    case OPT_LAMB:
    case OPT_ADAM4BIT:
    case OPT_NONE:
    case OPTIMIZER_COUNT: return OPTIMPL_FUSED;
    }
    return OPTIMPL_FUSED;
}

static void resolve_optimizer(struct run *r)
{
    char name[RESOLVE_TEXT_MAX], impl[RESOLVE_TEXT_MAX];
    r->optimizer_impl = (enum optimizer_impl)resolve_count(
        r, KEY_OPTIMIZER_IMPL, default_optimizer_impl(r));
    r->optimizer_in_backward =
        resolve_bool(r, KEY_OPTIMIZER_IN_BACKWARD, false);
    r->clip_grad = resolve_bool(r, KEY_CLIP_GRAD, true);
    r->zeroes_grads = !resolve_bool(r, KEY_ZERO_GRAD_SET_TO_NONE, true);
    resolve_assume(r, KEY_OPTIMIZER, "optimizer %s (--optimizer)",
                   resolve_text(r, KEY_OPTIMIZER, name));
    if (r->optimizer != OPT_NONE)
        resolve_assume(r, KEY_OPTIMIZER_IMPL,
                       "%s optimizer step (--optimizer-impl)",
                       resolve_text(r, KEY_OPTIMIZER_IMPL, impl));
}

/* ---- kernels, recomputation, buffers ---- */

/* Megatron's checkpoint is a function of autograd that runs backward inside,
 * as torch's with use_reentrant=True. transformers 5, torchtitan and torchtune
 * use the other, which stops at the last tensor that backward needs
 * (torch/utils/checkpoint.py); transformers 4 used the first. */
static bool default_reentrant(const struct run *r)
{
    return r->impl == IMPL_MEGATRON || r->impl == IMPL_MEGATRON_LOCAL
           || r->impl == IMPL_PAPER;
}

static void resolve_recompute(struct run *r)
{
    enum recompute mode =
        r->given[KEY_RECOMPUTE_MODULES] ? RECOMP_SELECTIVE : RECOMP_NONE;
    r->recompute = (enum recompute)resolve_count(r, KEY_RECOMPUTE, mode);
    r->recompute_reentrant =
        resolve_bool(r, KEY_RECOMPUTE_REENTRANT, default_reentrant(r));
    if (r->recompute == RECOMP_NONE) {
        resolve_assume(r, KEY_RECOMPUTE,
                       "no activation recomputation (--recompute)");
        return;
    }
    uint64_t most = 0;
    for (uint64_t i = 0; i < r->pp; i++)
        most = max_u64(most, r->stage_layers[i]);
    if (r->recompute == RECOMP_SELECTIVE) { /* in every layer */
        r->recompute_modules =
            resolve_count(r, KEY_RECOMPUTE_MODULES, 1u << REMOD_CORE_ATTN);
        r->recompute_layers = resolve_force(r, KEY_RECOMPUTE_LAYERS, most);
        r->recompute_granularity =
            resolve_force(r, KEY_RECOMPUTE_GRANULARITY, 1);
        return;
    }
    r->recompute_layers = resolve_count(r, KEY_RECOMPUTE_LAYERS, most);
    if (r->recompute == RECOMP_OPS) /* a policy is one block's */
        r->recompute_granularity =
            resolve_force(r, KEY_RECOMPUTE_GRANULARITY, 1);
    else
        r->recompute_granularity =
            resolve_count(r, KEY_RECOMPUTE_GRANULARITY, 1);
}

static void resolve_dropout(struct run *r, const struct spec *spec)
{
    r->hidden_dropout = spec->hidden_dropout;
    r->embed_dropout = spec->embed_dropout;
    r->attention_dropout = spec->attention_dropout;
    r->head_dropout = spec->head_dropout;
    r->act_dropout = spec->act_dropout;
    if (r->impl == IMPL_TORCHTITAN || resolve_is_litgpt(r)) { /* none there */
        r->hidden_dropout = r->embed_dropout = r->attention_dropout = 0;
        r->head_dropout = r->act_dropout = 0;
        resolve_real(r, KEY_DROPOUT, 0);
        return;
    }
    if (r->given[KEY_DROPOUT]) {
        double p = r->setup.v[KEY_DROPOUT].x;
        r->hidden_dropout = r->embed_dropout = p;
        r->attention_dropout = r->head_dropout = p;
        if (spec->act_dropout > 0)
            r->act_dropout = p;
        return;
    }
    resolve_real(r, KEY_DROPOUT, r->hidden_dropout);
    bool any = r->hidden_dropout > 0 || r->attention_dropout > 0;
    if (any && r->impl != IMPL_PAPER)
        resolve_note(r, KEY_DROPOUT,
                     "dropout as the model's file says (--dropout)");
}

/* Megatron-LM's --deterministic-mode is off unless asked for, but the runs that
 * it publishes memory of have it (tests/functional_tests): taken for the
 * default of `megatron`, and said. */
static void resolve_deterministic(struct run *r)
{
    /* "Cross Entropy Fusion is currently not deterministic"
       (training/arguments.py) */
    r->deterministic =
        resolve_bool(r, KEY_DETERMINISTIC,
                     r->framework == FW_MEGATRON && r->loss != LOSS_FUSED);
    /* a flag of its own, which those runs set too
       (--no-gradient-accumulation-fusion) */
    r->wgrad_fusion = resolve_bool(r, KEY_GRAD_ACCUM_FUSION, !r->deterministic);
    if (r->deterministic)
        resolve_assume(r, KEY_DETERMINISTIC,
                       "deterministic kernels%s, as in Megatron-LM's own tests "
                       "(--deterministic%s)",
                       r->wgrad_fusion ? "" : ", weight gradients not fused",
                       r->wgrad_fusion ? "" : ", --grad-accum-fusion");
}

static void resolve_kernels(struct run *r, const struct spec *spec)
{
    char buf[RESOLVE_TEXT_MAX];
    bool paper = r->impl == IMPL_PAPER;
    enum attention kernel = has_flash(r->gpu.arch) ? ATTN_FLASH : ATTN_SDPA;
    if (resolve_is_hf(r))
        kernel = spec_hf_attention(spec, kernel);
    if (paper || r->impl == IMPL_MEGATRON_LOCAL) /* they spell it out */
        kernel = ATTN_EAGER;
    r->attention = (enum attention)resolve_count(r, KEY_ATTENTION, kernel);
    r->loss = (enum loss)resolve_count(r, KEY_LOSS, LOSS_STANDARD);
    r->keep_outputs = resolve_bool(r, KEY_KEEP_OUTPUTS, resolve_is_litgpt(r));
    r->fp32_logits = resolve_bool(r, KEY_FP32_LOGITS, false);
    r->mask =
        (enum attention_mask)resolve_count(r, KEY_ATTENTION_MASK, MASK_NONE);
    if (paper)
        resolve_note(r, KEY_COUNT,
                     "attention spelled out, dropout everywhere, as in the "
                     "paper (--implementation)");
    else if (!spec_is_convnet(spec) && spec->heads > 0)
        resolve_assume(r, KEY_ATTENTION, "%s attention (--attention)",
                       resolve_text(r, KEY_ATTENTION, buf));
    resolve_dropout(r, spec);
    r->compile = resolve_bool(r, KEY_COMPILE, false);
    resolve_bool(r, KEY_CUDA_GRAPH, false);
    resolve_bool(r, KEY_EP_OVERLAP, false);
    r->plain_softmax = !resolve_bool(r, KEY_FUSED_SOFTMAX, true);
    r->grouped_gemm = resolve_bool(r, KEY_GROUPED_GEMM, true);
    r->replay_batches = resolve_bool(r, KEY_REPLAY_BATCHES, false);
    if (spec->mixer != MIX_ATTENTION)
        resolve_assume(r, KEY_SSM_KERNEL, "the kernels of %s (--ssm-kernel)",
                       spec->mixer == MIX_DELTA
                           ? "flash-linear-attention and causal-conv1d"
                           : "mamba-ssm and causal-conv1d");
    (void)resolve_count(r, KEY_SSM_KERNEL, SSM_KERNEL_FUSED);
    r->ce_fusion = (enum ce_fusion)resolve_count(r, KEY_CE_FUSION, CE_TE);
    r->cp_comm = (enum cp_comm)resolve_count(r, KEY_CP_COMM, CP_P2P);
    r->moe_dispatcher = (enum moe_dispatcher)resolve_count(
        r, KEY_MOE_DISPATCHER, DISPATCH_ALLTOALL);
    r->moe_imbalance = resolve_real(r, KEY_MOE_IMBALANCE, 1);
    r->moe_capacity = resolve_real(r, KEY_MOE_CAPACITY_FACTOR, 0);
    r->moe_padded = resolve_bool(r, KEY_MOE_PAD_TO_CAPACITY, false);
    resolve_deterministic(r);
    r->allocator =
        (enum allocator_kind)resolve_count(r, KEY_ALLOCATOR, ALLOC_DEFAULT);
    r->fast = resolve_bool(r, KEY_FAST, false);
}

/* deepspeed/runtime/zero/config.py, elements. */
enum {
    DS_BUCKET = 500000000,
    DS_PREFETCH_BUCKET = 50000000,
    DS_MAX_LIVE_PARAMS = 1000000000,
    DS_SUB_GROUP_SIZE = 1000000000,
    DS_PERSISTENCE_THRESHOLD = 100000
};
/* torch DistributedDataParallel: bucket_cap_mb=25. */
enum { DDP_BUCKET_BYTES = 25 * 1024 * 1024 };

static bool default_overlap(const struct run *r)
{
    if (r->engine == ENGINE_DEEPSPEED)
        return r->zero == 3; /* its config: false for stages 1 and 2 */
    return r->engine != ENGINE_MEGATRON; /* --overlap-grad-reduce is a flag */
}

/* The CUDA of Megatron-DeepSpeed's years; lazy since. */
bool run_loads_all_kernels(const struct run *r)
{
    return r->impl == IMPL_MEGATRON_LOCAL
           && r->framework == FW_MEGATRON_DEEPSPEED;
}

static uint64_t default_context(const struct run *r)
{
    if (!run_loads_all_kernels(r))
        return CUDA_CONTEXT_BYTES;
    return r->gpu.arch == ARCH_VOLTA ? CUDA_CONTEXT_EAGER_VOLTA_BYTES
                                     : CUDA_CONTEXT_EAGER_BYTES;
}

static void resolve_buffers(struct run *r)
{
    r->reduce_bucket = resolve_count(r, KEY_REDUCE_BUCKET, DS_BUCKET);
    r->allgather_bucket = resolve_count(r, KEY_ALLGATHER_BUCKET, DS_BUCKET);
    r->prefetch_bucket =
        resolve_count(r, KEY_PREFETCH_BUCKET, DS_PREFETCH_BUCKET);
    r->max_live_params =
        resolve_count(r, KEY_MAX_LIVE_PARAMS, DS_MAX_LIVE_PARAMS);
    r->sub_group_size = resolve_count(r, KEY_SUB_GROUP_SIZE, DS_SUB_GROUP_SIZE);
    r->persistence_threshold =
        resolve_count(r, KEY_PERSISTENCE_THRESHOLD, DS_PERSISTENCE_THRESHOLD);
    r->ddp_bucket_bytes = resolve_count(r, KEY_DDP_BUCKET, DDP_BUCKET_BYTES);
    r->cuda_context_bytes =
        resolve_count(r, KEY_CUDA_CONTEXT, default_context(r));
    /* torchtune's configurations: custom_sharded_layers */
    r->fsdp_units = (enum fsdp_units)resolve_count(
        r, KEY_FSDP_UNITS, r->impl == IMPL_TORCHTUNE ? FSDP_ENDS : FSDP_LAYERS);
    r->zero_flatten =
        (enum zero_flatten)resolve_count(r, KEY_ZERO_FLATTEN, FLATTEN_GPU);
    r->zero_bucket =
        (enum zero_bucket)resolve_count(r, KEY_ZERO_BUCKET, BUCKET_GRADIENT);
    r->overlap_comm = resolve_bool(r, KEY_OVERLAP_COMM, default_overlap(r));
    r->offload_params =
        (enum offload)resolve_count(r, KEY_OFFLOAD_PARAMS, OFFLOAD_NONE);
    r->offload_optimizer = (enum offload)resolve_count(
        r, KEY_OFFLOAD_OPTIMIZER,
        resolve_is_fsdp(r) ? r->offload_params : OFFLOAD_NONE);
    r->offload_activations =
        (enum offload)resolve_count(r, KEY_OFFLOAD_ACTIVATIONS, OFFLOAD_NONE);
    if (r->engine == ENGINE_DEEPSPEED && r->zero > 0)
        resolve_assume(r, KEY_REDUCE_BUCKET,
                       "DeepSpeed's own buckets, not the Trainer's \"auto\" "
                       "(--reduce-bucket)");
}

/* ---- adapters ---- */

/* With adapters the formats of `prec` are theirs: nothing else has gradients,
 * a master copy or optimizer states. */
static void resolve_lora(struct run *r)
{
    r->lora_rank = resolve_count(r, KEY_LORA_RANK, 0);
    r->lora_dtype = r->prec.param;
    r->base_dtype = r->prec.param;
    if (r->lora_rank == 0)
        return;
    r->lora_targets = resolve_count(r, KEY_LORA_TARGETS, 1u << LORA_ALL_LINEAR);
    r->lora_full = r->given[KEY_LORA_FULL_MODULES]
                       ? r->setup.v[KEY_LORA_FULL_MODULES].n
                       : 0;
    r->base_dtype = dtype_or(r, KEY_BASE_DTYPE, r->prec.compute);
    r->lora_dtype = dtype_or(r, KEY_LORA_DTYPE, r->prec.param);
    r->double_quant = resolve_bool(r, KEY_DOUBLE_QUANT, false);
    /* PEFT's default; LitGPT's is another (litgpt/finetune/lora.py) */
    r->lora_dropout =
        resolve_real(r, KEY_LORA_DROPOUT, resolve_is_litgpt(r) ? 0.05 : 0);
    resolve_assume(r, KEY_LORA_TARGETS,
                   "adapters on all linear layers (--lora-targets)");
    resolve_assume(r, KEY_BASE_DTYPE, "frozen weights in %s (--base-dtype)",
                   dtype_name(r->base_dtype));
    if (r->lora_dtype == r->prec.param)
        return;

    r->prec.param = r->lora_dtype;
    if (!r->given[KEY_GRAD_DTYPE])
        r->prec.grad = r->lora_dtype;
    if (!r->given[KEY_REDUCE_DTYPE])
        r->prec.reduce = r->lora_dtype;
    if (!r->given[KEY_MASTER_DTYPE] && r->lora_dtype == DT_FP32)
        r->prec.master = DT_NONE;
    if (!r->given[KEY_OPTIMIZER_DTYPE] && r->prec.master == DT_NONE)
        r->prec.optim = moments(r->optimizer, r->lora_dtype);
    r->setup.v[KEY_GRAD_DTYPE].n = r->prec.grad;
    r->setup.v[KEY_REDUCE_DTYPE].n = r->prec.reduce;
    r->setup.v[KEY_MASTER_DTYPE].n = r->prec.master;
    r->setup.v[KEY_OPTIMIZER_DTYPE].n = r->prec.optim;
}

/* ---- the whole ---- */

/* Texts of assumptions are not cleared: n_assumptions says how many count. */
static void start(struct run *r, const struct setup *setup)
{
    memset(r, 0, offsetof(struct run, assumption));
    r->n_assumptions = 0;
    if (setup) {
        r->setup = *setup;
        memcpy(r->given, setup->set, sizeof(r->given));
    }
    r->gpus = r->dp = r->tp = r->pp = r->vpp = r->cp = r->ep = r->etp = 1;
    r->shard = r->expert_shard = 1;
    r->micro_batch = r->grad_accum = r->global_batch = r->seq_len = 1;
}

memplan_status setup_resolve(struct run *run, const struct setup *setup,
                             const struct spec *spec, uint64_t params,
                             struct diag *d)
{
    start(run, setup);
    resolve_gpu(run);
    resolve_framework(run);
    resolve_precision(run, spec);
    if (!spec) {
        resolve_gpus(run);
        say_emulation(run);
        resolve_training(run, NULL, params);
        resolve_check_alone(run, d);
        return d->status;
    }
    say_framework(run);
    resolve_layout(run, spec, d);
    say_precision(run);
    say_emulation(run);
    resolve_optimizer(run);
    resolve_recompute(run);
    resolve_kernels(run, spec);
    resolve_lora(run);
    resolve_buffers(run);
    resolve_notes(run, spec);
    resolve_training(run, spec, params);
    resolve_check(run, spec, d);
    return d->status;
}

void run_bare(struct run *run, const struct spec *spec)
{
    start(run, NULL);
    resolve_gpu(run);
    run->n_assumptions = 0;
    run->framework = FW_HF;
    run->impl = IMPL_HF;
    run->engine = ENGINE_DDP;
    run->precision = PREC_BF16;
    run->prec = (struct precision_bytes){
        .param = DT_BF16,
        .compute = DT_BF16,
        .grad = DT_BF16,
        .reduce = DT_BF16,
        .master = DT_NONE,
        .optim = DT_BF16,
    };
    run->stage_layers[0] = (uint16_t)min_u64(spec_blocks(spec), UINT16_MAX);
    run->decoder_seq_len = spec->decoder_layers > 0 ? 1 : 0;
    run->optimizer = OPT_NONE;
    run->optimizer_impl = OPTIMPL_FUSED;
    run->attention = ATTN_FLASH;
    run->vocab = spec->vocab;
    run->lora_dtype = run->base_dtype = DT_BF16;
    run->peak_flop_s = run->gpu.peak_bf16_flop_s;
    run->availability = run->mfu = 1;
}
