/*
 * Owns what an engine cannot have: stages of ZeRO, offloading, number formats.
 * Variants of stage 3: resolve_check_zero.c. Changes nothing.
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "data/constants.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

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

/* Stage 2 is the word for weights that stay whole. */
static void check_reshard(const struct run *r, struct diag *d)
{
    if (!r->reshard || r->zero != 2 || !run_is_fsdp(r))
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_RESHARD_AFTER_FORWARD,
                    "reshard_after_forward with zero 2, which leaves weights "
                    "whole after forward");
    diag_hint(e, "use --zero 3, or leave it out");
}

/* Each parameter is a DTensor of its own. */
static void check_orig_params(const struct run *r, struct diag *d)
{
    if (!r->use_orig_params || r->engine != ENGINE_FSDP2)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_USE_ORIG_PARAMS,
        "use_orig_params with engine 'fsdp2', which has no flat parameters");
    diag_hint(e, "leave it out, or use --engine fsdp");
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

/* --schedule naive chose DDP, or spreads the model. */
static bool is_spread(const struct run *r)
{
    return run_spreads(r)
           || (r->given[KEY_SCHEDULE] && !r->given[KEY_FRAMEWORK]
               && !r->given[KEY_ENGINE] && !r->given[KEY_IMPLEMENTATION]);
}

void resolve_check_zero(const struct run *r, struct diag *d)
{
    switch (r->engine) {
    case ENGINE_DDP:
        if (r->zero > 0)
            zero_conflict(r, "with engine 'ddp', which shards nothing",
                          is_spread(r)
                              ? "leave zero out, or leave schedule out: "
                                "device_map is of one process"
                              : "use --framework deepspeed (or fsdp for zero "
                                "2, 3)",
                          d);
        return;
    case ENGINE_DEEPSPEED:
        if (r->pp > 1 && r->zero > 1)
            zero_conflict(r,
                          "under DeepSpeed's pipelines, which shard "
                          "optimizer states only",
                          "use --zero 1 or 0, or --pp 1", d);
        resolve_check_zero_3(r, d);
        return;
    case ENGINE_FSDP:
    case ENGINE_FSDP2:
        check_zero_0_of_fsdp(r, d);
        check_reshard(r, d);
        check_orig_params(r, d);
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

static const char *engine_word(const struct run *r)
{
    static const char *const words[] = {
#define ENGINE_WORD(id, text) text,
        ENGINE_MAP(ENGINE_WORD)
#undef ENGINE_WORD
    };
    return words[r->engine];
}

/* FSDP moves shards, gradients and optimizer together, or nothing; it has
 * nothing on disk. */
static void check_fsdp_offload(const struct run *r, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = NULL;
    if (r->offload_params == OFFLOAD_NONE) {
        if (r->offload_optimizer == OFFLOAD_NONE)
            return;
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_OPTIMIZER,
                        "offload_optimizer '%s' with engine '%s', which moves "
                        "the optimizer only with its shards",
                        resolve_text(r, KEY_OFFLOAD_OPTIMIZER, buf),
                        engine_word(r));
        diag_hint(e, "add --offload-params cpu");
    } else if (r->offload_params == OFFLOAD_NVME) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_PARAMS,
                        "offload_params 'nvme' with engine '%s', which has no "
                        "place on disk",
                        engine_word(r));
        diag_hint(e, "use --offload-params cpu, or --framework deepspeed");
    } else if (r->zero == 0 || r->offload_optimizer != OFFLOAD_CPU) {
        e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_PARAMS,
            r->zero == 0 ? "offload_params 'cpu' with zero 0"
                         : "offload_params 'cpu' without the optimizer, which "
                           "updates where the shards are");
        diag_hint(e, r->zero == 0 ? "use --zero 3"
                                  : "leave offload_optimizer out");
    }
}

/* Master weights, moments and a gradient of each are in buffers at once
 * (swap_tensor/partitioned_optimizer_swapper.py, swap_in_optimizer_state). */
static void check_swapping(const struct run *r, struct diag *d)
{
    memplan_error *e = NULL;
    if (r->offload_optimizer == OFFLOAD_NVME && r->zero < 3) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_OPTIMIZER,
                        "offload_optimizer 'nvme' with zero %" PRIu64
                        ", which keeps "
                        "states in memory",
                        r->zero);
        diag_hint(e, "use --zero 3, or --offload-optimizer cpu");
    } else if (r->offload_optimizer == OFFLOAD_NVME && r->optimizer != OPT_ADAMW
               && r->zero == 3) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_OPTIMIZER,
                        "offload_optimizer 'nvme' of another optimizer than "
                        "adamw is not modelled yet");
        diag_hint(e, "use --optimizer adamw, or --offload-optimizer cpu");
    } else if (r->offload_optimizer == OFFLOAD_NVME
               && r->optimizer_buffers < 4) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OPTIMIZER_BUFFERS,
                        "fewer swap buffers than master weights, two moments "
                        "and gradients take");
        diag_hint(e, "use --optimizer-buffers 4 or more");
    }
}

/* A shard is read into one buffer (partitioned_param_swapper.py,
 * get_buffer). */
static void check_param_buffer(const struct run *r, const struct spec *s,
                               struct diag *d)
{
    const struct count table = PROD(r->vocab, s->hidden);
    if (r->offload_params != OFFLOAD_NVME || r->shard == 0
        || div_up(table.v, r->shard) <= r->param_buffer_elems)
        return;
    memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_PARAM_BUFFER_SIZE,
                                   "param_buffer_size %" PRIu64
                                   " is less than a shard of the embedding",
                                   r->param_buffer_elems);
    diag_hint(e, "use --param-buffer-size %" PRIu64 " or more",
              div_up(table.v, r->shard));
}

/* Whole sub-groups stay, in torch.optim.AdamW beside DeepSpeedCPUAdam
 * (stage3.py, 'Hybrid Optimizer Only Supports DeepSpeedCPUAdam'; config.py,
 * offload_ratio_check). */
static void check_ratio(const struct run *r, struct diag *d)
{
    const bool zero_3 = run_zero_is(r, 3);
    memplan_error *e = NULL;
    if (!(r->offload_ratio < 1) || r->offload_optimizer == OFFLOAD_NONE)
        return;
    if (!zero_3 && r->engine != ENGINE_MEGATRON) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_RATIO,
                        "offload_ratio below 1 with engine '%s'%s",
                        engine_word(r),
                        r->engine == ENGINE_DEEPSPEED
                            ? ", whose other stages than 3 move all states"
                            : "");
        diag_hint(e, r->engine == ENGINE_DEEPSPEED
                         ? "use --zero 3, or leave it out"
                         : "leave it out, or use --framework deepspeed "
                           "--zero 3");
    } else if (r->offload_optimizer == OFFLOAD_NVME) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_RATIO,
                        "offload_ratio below 1 with states on disk, which "
                        "all are");
        diag_hint(e, "use --offload-optimizer cpu, or leave it out");
    } else if (r->optimizer != OPT_ADAMW) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_RATIO,
                        "offload_ratio below 1 of another optimizer than "
                        "adamw");
        diag_hint(e, "use --optimizer adamw, or leave it out");
    }
}

/* The master weights, or where there are none the weights, which are updated
 * as they are. */
static enum dtype updated(const struct run *r)
{
    return r->prec.master == DT_NONE ? r->prec.param : r->prec.master;
}

/* Megatron's HybridDeviceOptimizer clones what is not fp32, and its Adams are
 * not told of --exp-avg-dtype (optimizer/__init__.py; hybrid_optimizer.py,
 * _get_sub_optimizer_param_groups). Of DeepSpeed's two, DeepSpeedCPUAdam has
 * fp32 moments unless told, torch.optim.AdamW such as the master weights, in
 * 16 bits with bf16_master_weights_and_grads alone. */
static void check_fp32_states(const struct run *r, struct diag *d)
{
    const bool megatron = r->engine == ENGINE_MEGATRON;
    const enum setup_key key = r->given[KEY_MASTER_DTYPE]  ? KEY_MASTER_DTYPE
                               : r->given[KEY_PARAM_DTYPE] ? KEY_PARAM_DTYPE
                                                           : KEY_PRECISION;
    const char *where = megatron ? "an optimizer that Megatron offloads"
                                 : "an offload_ratio below 1";
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = NULL;
    if (r->offload_optimizer != OFFLOAD_CPU
        || (!megatron && !(r->offload_ratio < 1)))
        return;
    if (updated(r) != DT_FP32) {
        e = setup_error(
            d, megatron ? MEMPLAN_E_CONFLICT : MEMPLAN_E_UNSUPPORTED, key,
            "%s '%s' with %s, which has fp32 master weights",
            setup_field(key)->key, resolve_text(r, key, buf), where);
        diag_hint(e, key == KEY_PRECISION ? "use --precision bf16-mixed"
                                          : "use fp32");
    } else if ((r->given[KEY_OPTIMIZER_DTYPE] || r->optimizer == OPT_ADAMW)
               && r->prec.optim != DT_FP32) {
        e = setup_error(d,
                        megatron ? MEMPLAN_E_CONFLICT : MEMPLAN_E_UNSUPPORTED,
                        KEY_OPTIMIZER_DTYPE,
                        "optimizer_dtype '%s' with %s, which has fp32 moments",
                        dtype_name(r->prec.optim), where);
        diag_hint(e, "use fp32");
    }
}

static void check_deepspeed_offload(const struct run *r, const struct spec *s,
                                    struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = NULL;
    if (r->offload_params != OFFLOAD_NONE && r->zero != 3) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_PARAMS,
                        "offload_params '%s' with zero %" PRIu64,
                        resolve_text(r, KEY_OFFLOAD_PARAMS, buf), r->zero);
        diag_hint(e, "use --zero 3: other stages keep weights whole");
    }
    if (r->offload_optimizer != OFFLOAD_NONE && r->zero == 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_OPTIMIZER,
                        "offload_optimizer '%s' with zero 0",
                        resolve_text(r, KEY_OFFLOAD_OPTIMIZER, buf));
        diag_hint(e, "add --zero 1, 2 or 3");
    } else {
        check_swapping(r, d);
    }
    check_param_buffer(r, s, d);
}

/* --optimizer-cpu-offload wants the precision-aware optimizer, and that the
 * distributed one (megatron/training/arguments.py). */
static void check_megatron_offload(const struct run *r, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = NULL;
    if (r->offload_optimizer == OFFLOAD_NVME) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_OPTIMIZER,
                        "offload_optimizer 'nvme' with engine 'megatron', "
                        "which has no place on disk");
        diag_hint(e, "use --offload-optimizer cpu");
    } else if (r->offload_optimizer == OFFLOAD_CPU && r->zero != 1) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_OPTIMIZER,
                        "offload_optimizer 'cpu' with engine 'megatron' "
                        "without the distributed optimizer");
        diag_hint(e, "add --zero 1");
    }
    if (r->offload_params != OFFLOAD_NONE) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_PARAMS,
                        "offload_params '%s' with engine 'megatron'",
                        resolve_text(r, KEY_OFFLOAD_PARAMS, buf));
        diag_hint(e, "leave it out: Megatron keeps its weights on the "
                     "GPU; --offload-optimizer cpu is modelled");
    }
}

static void check_no_offload(const struct run *r, enum setup_key key,
                             enum offload where, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    if (where == OFFLOAD_NONE)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_UNSUPPORTED, key,
        "%s '%s' with engine '%s' is not modelled yet", setup_field(key)->key,
        resolve_text(r, key, buf), engine_word(r));
    diag_hint(e, "use --framework deepspeed --zero %d",
              key == KEY_OFFLOAD_PARAMS || where == OFFLOAD_NVME ? 3 : 2);
}

void resolve_check_offload(const struct run *r, const struct spec *s,
                           struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    if (r->offload_optimizer != OFFLOAD_NONE && r->optimizer == OPT_NONE) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_OPTIMIZER,
                        "offload_optimizer '%s' without an optimizer",
                        resolve_text(r, KEY_OFFLOAD_OPTIMIZER, buf));
        diag_hint(e, "leave it out, or use --optimizer adamw");
        return;
    }
    check_ratio(r, d);
    check_fp32_states(r, d);
    if (run_is_fsdp(r)) {
        check_fsdp_offload(r, d);
    } else if (r->engine == ENGINE_DEEPSPEED) {
        check_deepspeed_offload(r, s, d);
    } else if (r->engine == ENGINE_MEGATRON) {
        check_megatron_offload(r, d);
    } else {
        check_no_offload(r, KEY_OFFLOAD_OPTIMIZER, r->offload_optimizer, d);
        check_no_offload(r, KEY_OFFLOAD_PARAMS, r->offload_params, d);
    }
}

/* transformers looks for nn.Linear alone, and raises where it finds none
 * (trainer_optimizer.py, _setup_low_rank_optimizer): GPT-2's matrices are
 * Conv1D, but for its head. */
static bool finds_no_linear(const struct run *r, const struct spec *s)
{
    const uint64_t head = UINT64_C(1) << OPTIMIZER_TARGET_HEAD;
    return s->family == FAM_GPT2 && run_is_hf(r) && !run_is_litgpt(r)
           && (r->optimizer_targets & head) == 0;
}

static void check_projected(const struct run *r, const struct spec *s,
                            const char *name, struct diag *d)
{
    memplan_error *e;
    if (finds_no_linear(r, s)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OPTIMIZER,
                        "optimizer '%s' of GPT-2, whose matrices are Conv1D: "
                        "transformers projects nn.Linear alone",
                        name);
        diag_hint(e, "use --optimizer adamw, or --optimizer-targets head");
    } else if (spec_is_convnet(s)) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER,
                        "optimizer '%s' of a convolutional network, which has "
                        "no such matrices, is not modelled",
                        name);
        diag_hint(e, "use --optimizer adamw");
    }
}

/* Projections are of whole matrices: shards are cut through them, and what is
 * flattened has none. */
void resolve_check_projection(const struct run *r, const struct spec *s,
                              struct diag *d)
{
    if (!run_projects(r))
        return;
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e;
    const char *name = resolve_text(r, KEY_OPTIMIZER, buf);
    const bool shards = r->zero > 0 && r->gpus > 1;
    char as[RESOLVE_TEXT_MAX];
    check_projected(r, s, name, d);
    if (r->engine != ENGINE_DDP || r->tp > 1) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER,
                        "optimizer '%s' with %s%s%s is not modelled yet", name,
                        r->tp > 1 ? "tensor parallelism"
                        : shards  ? "flat or sharded states"
                                  : "engine '",
                        r->tp > 1 || shards ? ""
                                            : resolve_text(r, KEY_ENGINE, as),
                        r->tp > 1 || shards ? "" : "'");
        diag_hint(e, r->tp > 1 ? "use --framework hf without tp, or "
                                 "--optimizer adamw"
                               : "use --framework hf, or --optimizer adamw");
    } else if (r->lora_rank > 0) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER,
                        "optimizer '%s' of adapters, which are of low rank "
                        "already, is not modelled",
                        name);
        diag_hint(e, "leave out --lora-rank, or use --optimizer adamw");
    } else if (r->optimizer_in_backward && r->compile) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER_IN_BACKWARD,
                        "optimizer '%s' in the backward of compiled layers is "
                        "not modelled yet",
                        name);
        diag_hint(e, "leave out --compile");
    }
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

/* Stage 1 has an optimizer of its own for fp32 over bf16 alone; otherwise each
 * parameter has a second gradient, whole (use_grad_accum_attribute), which is
 * not held against anything. DeepSpeed has such a key since 0.8 (engine.py,
 * get_data_types), which Megatron-DeepSpeed's runs are older than: theirs is
 * the pipeline's. */
static bool has_own_grad_dtype(const struct run *r)
{
    if (r->framework == FW_MEGATRON_DEEPSPEED && r->zero >= 2)
        return false;
    return run_is_bf16_optimizer(r) || r->zero == 3 || run_is_bf16_pipeline(r)
           || run_sums_in_fp32(r);
}

/* The stages that would have it, as a hint: "leave it out, or use --zero 3". */
static void hint_stages(const struct run *r, memplan_error *e)
{
    uint64_t stage[4];
    size_t n = 0;
    for (uint64_t z = 0; z <= 3; z++) {
        struct run other = *r;
        other.zero = z;
        if (has_own_grad_dtype(&other))
            stage[n++] = z;
    }
    diag_hint(e, "leave it out");
    for (size_t i = 0; i < n; i++)
        str_append(e->hint, sizeof(e->hint), "%s%" PRIu64,
                   i == 0       ? ", or use --zero "
                   : i + 1 == n ? " or "
                                : ", ",
                   stage[i]);
}

/* Gradients of adapters are few: what stage 2 sums them in is not looked at. */
static bool refuses_adapters_sum(const struct run *r, struct diag *d)
{
    if (r->zero != 2 || !run_adapts(r))
        return false;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_GRAD_DTYPE,
                    "grad_dtype '%s' of adapters in %s under "
                    "ZeRO-2 is not modelled yet",
                    dtype_name(r->prec.grad), dtype_name(r->prec.param));
    hint_stages(r, e);
    return true;
}

/* autograd gives a gradient its weight's dtype. Who keeps another one:
 * DeepSpeed's stages 1 (BF16_Optimizer), 2 and 3, FSDP and Megatron. */
static void check_grad_dtype(const struct run *r, struct diag *d)
{
    enum dtype t = r->prec.grad, param = r->prec.param;
    bool ds = r->engine == ENGINE_DEEPSPEED;
    if (!r->given[KEY_GRAD_DTYPE] || t == param || !is_float(t))
        return;
    if (ds ? has_own_grad_dtype(r) : r->engine != ENGINE_DDP)
        return;
    if (ds && refuses_adapters_sum(r, d))
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
        hint_stages(r, e);
    else
        diag_hint(e, "leave it out, or use %s %s",
                  run_adapts(r) ? "--lora-dtype" : "--param-dtype",
                  dtype_name(t));
}

/* Master weights of 16 bits, whatever key says so: of bf16 with moments of
 * it, else on the CPU alone (base_optimizer.py, _configure_master_weights;
 * engine.py: 'only supported with ZeRO Stage 1, 2, or 3'). */
static void check_16_bit_masters(const struct run *r, struct diag *d)
{
    const enum dtype t = updated(r);
    const enum setup_key key =
        r->given[KEY_MASTER_DTYPE] ? KEY_MASTER_DTYPE : KEY_PRECISION;
    char buf[RESOLVE_TEXT_MAX];
    if (r->engine != ENGINE_DEEPSPEED || run_adapts(r) || run_pipelines(r)
        || r->impl == IMPL_PAPER || r->framework == FW_MEGATRON_DEEPSPEED
        || (t != DT_FP16 && t != DT_BF16))
        return;
    const char *other = key == KEY_MASTER_DTYPE ? "fp32"
                        : t == DT_BF16          ? "--precision bf16-mixed"
                                                : "--precision fp16-mixed";
    if (r->zero == 0) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, key,
                        "%s '%s' with engine 'deepspeed' and zero 0, which has "
                        "fp32 master weights",
                        setup_field(key)->key, resolve_text(r, key, buf));
        diag_hint(e, "use %s", other);
    } else if (r->offload_optimizer == OFFLOAD_NONE
               && (t == DT_FP16 || r->prec.optim == DT_FP32)) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, key,
            "%s '%s' under DeepSpeed's ZeRO: 'Master weights "
            "feature requires ZeRO-%" PRIu64 " Offload with DeepSpeedCPUAdam'",
            setup_field(key)->key, resolve_text(r, key, buf), r->zero);
        diag_hint(e, "use %s, or add --offload-optimizer cpu", other);
    }
}

/* What it kept is known of Megatron-DeepSpeed's runs alone. */
static void check_zero3_lists(const struct run *r, struct diag *d)
{
    if (!r->given[KEY_ZERO3_LISTS] || !r->setup.v[KEY_ZERO3_LISTS].n)
        return;
    if (run_zero_is(r, 3) && r->impl == IMPL_MEGATRON_LOCAL)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_ZERO3_LISTS,
                    "zero3_lists is modelled of ZeRO-3 under Megatron's "
                    "layers without Transformer Engine");
    diag_hint(
        e,
        "leave it out, or use --framework megatron-deepspeed --implementation megatron-local --zero 3");
}

static void check_master_dtype(const struct run *r, struct diag *d)
{
    if (!r->given[KEY_MASTER_DTYPE] || !run_is_fsdp(r)
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
void resolve_check_peak(const struct run *r, struct diag *d)
{
    const struct gpu *g = &r->gpu;
    const char *mixed = g->peak_bf16_flop_s > 0 ? "bf16-mixed" : "fp16-mixed";
    const char *lacks = NULL, *other = "";
    if (r->precision == PREC_FP8_MIXED && g->peak_fp8_flop_s <= 0) {
        lacks = "fp8";
        other = ", or --gpu h100-80gb";
    } else if (r->precision == PREC_FP4_MIXED && g->peak_fp4_flop_s <= 0) {
        lacks = "fp4";
        other = ", or --gpu b200 --framework megatron";
    } else if (r->precision == PREC_TF32 && g->peak_tf32_flop_s <= 0) {
        lacks = "tf32";
        mixed = "fp32";
    }
    if (!lacks)
        return;
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_PRECISION,
                    "precision '%s' on %s, which has no %s",
                    resolve_text(r, KEY_PRECISION, buf), g->name, lacks);
    diag_hint(e, "use --precision %s%s", mixed, other);
}

void resolve_check_precision(const struct run *r, struct diag *d)
{
    check_dtype(r, KEY_PARAM_DTYPE, false, d);
    check_dtype(r, KEY_GRAD_DTYPE, false, d);
    check_dtype(r, KEY_REDUCE_DTYPE, false, d);
    check_dtype(r, KEY_MASTER_DTYPE, true, d);
    check_dtype(r, KEY_OPTIMIZER_DTYPE, r->optimizer == OPT_NONE, d);

    check_grad_dtype(r, d);
    check_16_bit_masters(r, d);
    check_zero3_lists(r, d);
    check_master_dtype(r, d);
    resolve_check_peak(r, d);

    if (r->prec.autocast && run_engine_is_megatron(r)) {
        const bool named =
            r->precision == PREC_BF16_AMP || r->precision == PREC_FP16_AMP;
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, named ? KEY_PRECISION : KEY_PARAM_DTYPE,
            "engine 'megatron' has no 32-bit weights under "
            "autocast");
        diag_hint(e, named ? "use --precision bf16-mixed or fp16-mixed"
                           : "leave it out, or add --precision fp32");
    }
}
