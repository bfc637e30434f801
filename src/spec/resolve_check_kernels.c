/*
 * Owns what kernels and recomputation cannot be together. Changes nothing.
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "base/unit.h"
#include "data/constants.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* ---- recomputation, kernels ---- */

void resolve_pointless(struct diag *d, enum setup_key key, const char *without,
                       const char *hint)
{
    memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, key, "%s without %s",
                                   setup_field(key)->key, without);
    diag_hint(e, "%s", hint);
}

bool resolve_refuse(struct diag *d, const struct obstacle *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!list[i].here)
            continue;
        memplan_error *e =
            setup_error(d, list[i].status, list[i].key, "%s", list[i].what);
        diag_hint(e, "%s", list[i].hint);
        return true;
    }
    return false;
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
    /* core/transformer/transformer_config.py */
    if (r->recompute_modules >> REMOD_MOE_ACT & 1 && s->experts > 0
        && !r->grouped_gemm && resolve_is_megatron(r)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_RECOMPUTE_MODULES,
                        "recompute_modules 'moe_act' without grouped products "
                        "of experts");
        diag_hint(e, "use moe, or add --grouped-gemm true");
    }
}

/* core/model_parallel_config.py: tp_comm_overlap wants sequence parallelism. */
static void check_overlap(const struct run *r, struct diag *d)
{
    memplan_error *e = NULL;
    if (!r->tp_comm_overlap)
        return;
    if (r->impl != IMPL_MEGATRON) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_TP_COMM_OVERLAP,
                        "'tp_comm_overlap' is Transformer Engine's, in "
                        "Megatron");
        diag_hint(e, "leave it out, or use --framework megatron");
    } else if (r->tp == 1 || !r->sequence_parallel) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_TP_COMM_OVERLAP,
                        "tp_comm_overlap without sequence parallelism");
        diag_hint(e, "add --tp 2 or more, or leave it out");
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

/* Inductor puts a gather, or a scatter, and the products next to it into one
 * operation (torchtitan/models/llama3/infra/parallelize.py: "Async TP requires
 * --training.compile"). */
static void check_async_tp(const struct run *r, struct diag *d)
{
    memplan_error *e = NULL;
    if (!r->async_tp)
        return;
    if (r->impl != IMPL_TORCHTITAN) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_ASYNC_TP,
                        "'async_tp' is torchtitan's");
        diag_hint(e, resolve_is_megatron(r)
                         ? "use --tp-comm-overlap, Transformer Engine's, or "
                           "--framework torchtitan --compile"
                         : "leave it out, or use --framework torchtitan "
                           "--compile and --tp 2 or more");
    } else if (r->tp == 1 || !r->sequence_parallel) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_ASYNC_TP,
                        "async_tp without tensor and sequence parallelism");
        diag_hint(e, r->tp == 1 ? "add --tp 2 or more, or leave it out"
                                : "add --sequence-parallel, or leave it out");
    } else if (!r->compile) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_ASYNC_TP,
                        "async_tp without compiled layers: torchtitan refuses "
                        "it");
        diag_hint(e, "add --compile, or leave it out");
    }
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

/* fully_shard's hooks: torchtitan refuses stages and experts that ranks deal out
 * (components/optimizer.py), torchtune clipping, which would find no gradients
 * (recipes/full_finetune_distributed.py). */
static void check_unit_updates(const struct run *r, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e;
    if (r->pp > 1 || r->ep > 1) {
        const enum setup_key key = r->pp > 1 ? KEY_PP : KEY_EP;
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER_IN_BACKWARD,
                        "optimizer_in_backward with %s %s, which torchtitan "
                        "refuses",
                        r->pp > 1 ? "pp" : "ep", resolve_text(r, key, buf));
        diag_hint(e, "leave it out, or --%s", r->pp > 1 ? "pp" : "ep");
    } else if (run_adapts(r)) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER_IN_BACKWARD,
                        "optimizer_in_backward of adapters in shards is not "
                        "modelled yet");
        diag_hint(e, "leave it out: adapters' gradients are small");
    } else if (r->clip_grad) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_CLIP_GRAD,
                        "clip_grad with optimizer_in_backward, which leaves no "
                        "gradient to clip: torchtune refuses it");
        diag_hint(e, "leave out --clip-grad");
    }
}

/* One update a weight, once its gradient is there, or its unit's are reduced:
 * they are not summed over micro-batches. */
static void check_update_in_backward(const struct run *r, struct diag *d)
{
    if (!r->optimizer_in_backward)
        return;
    char buf[RESOLVE_TEXT_MAX];
    const bool alone = r->engine == ENGINE_DDP && r->gpus == 1;
    if (!alone && r->engine != ENGINE_FSDP2) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OPTIMIZER_IN_BACKWARD,
                        "optimizer_in_backward with engine '%s' on %" PRIu64
                        " GPUs is not modelled yet",
                        resolve_text(r, KEY_ENGINE, buf), r->gpus);
        diag_hint(e, "leave it out, or use --engine %s",
                  r->gpus > 1 ? "fsdp2" : "ddp");
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
    } else if (!alone) {
        check_unit_updates(r, d);
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
    diag_hint(e, "use --recompute full, or %s torchtitan",
              r->given[KEY_IMPLEMENTATION] ? "--implementation"
                                           : "--framework");
}

/* A key that another implementation's code has, and why not this one's. */
static void of_other_code(const struct run *r, struct diag *d,
                          enum setup_key key, const char *why, const char *hint)
{
    char buf[RESOLVE_TEXT_MAX];
    diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                          "'%s' with implementation '%s'%s",
                          setup_field(key)->key,
                          resolve_text(r, KEY_IMPLEMENTATION, buf), why),
              "%s", hint);
}

/* Operations outside Megatron and the paper belong to no module. */
static void check_selective(const struct run *r, struct diag *d)
{
    if (r->recompute != RECOMP_SELECTIVE
        || (!run_is_hf(r) && r->impl != IMPL_TORCHTITAN))
        return;
    char buf[RESOLVE_TEXT_MAX];
    enum setup_key key =
        r->given[KEY_RECOMPUTE] ? KEY_RECOMPUTE : KEY_RECOMPUTE_MODULES;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                    "selective recompute is not modelled for %s layers yet",
                    resolve_text(r, KEY_IMPLEMENTATION, buf));
    diag_hint(e, "use --recompute full, or %s megatron%s",
              r->given[KEY_IMPLEMENTATION] ? "--implementation" : "--framework",
              r->attention == ATTN_FLASH
                  ? "; with flash attention it saves nothing anyway"
                  : "");
}

/* Whose loops are their own, or a pipeline's. */
void resolve_check_outputs(const struct run *r, struct diag *d)
{
    const bool titan =
        (r->impl == IMPL_TORCHTITAN || r->impl == IMPL_TORCHTUNE) && r->pp == 1;
    const bool known = run_is_hf(r) || titan;
    if (r->fp32_logits && (!known || r->loss != LOSS_STANDARD)) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FP32_LOGITS,
                        "'fp32_logits' is modelled with hf, torchtitan and "
                        "torchtune layers and loss 'standard' only");
        diag_hint(e, "leave it out");
    }
    if (r->given[KEY_SHIFT_LOGITS] && r->shift_logits
        && (!run_is_hf(r) || r->loss != LOSS_STANDARD)) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_SHIFT_LOGITS,
                        "'shift_logits' is of hf layers and loss 'standard'");
        diag_hint(e, "leave it out");
    }
    if (r->drop_outputs && !r->keep_outputs)
        resolve_pointless(d, KEY_DROP_OUTPUTS, "keep_outputs",
                          "add --keep-outputs true, or leave it out");
    if (!r->given[KEY_KEEP_OUTPUTS] || !r->keep_outputs || run_is_hf(r)
        || (titan && r->loss == LOSS_STANDARD))
        return;
    of_other_code(r, d, KEY_KEEP_OUTPUTS, " is not modelled yet",
                  "leave it out, or use --implementation hf");
}

static void check_dropout_mask(const struct run *r, struct diag *d)
{
    if (!r->dropout_mask)
        return;
    if (!resolve_is_megatron(r)) {
        of_other_code(r, d, KEY_DROPOUT_MASK,
                      ": TorchScript is what Megatron's fused kernels were "
                      "compiled by",
                      "leave it out, or use --framework megatron");
    } else if (r->hidden_dropout > 0) {
        resolve_pointless(d, KEY_DROPOUT_MASK, "a dropout of 0",
                          "leave it out: a dropout above 0 keeps masks anyway");
    }
}

/* Such a PyTorch has neither SDPA nor compiled layers; the paper's softmax is
 * no PyTorch's. */
static void check_softmax_input(const struct run *r, struct diag *d)
{
    if (!r->softmax_input)
        return;
    if (!run_is_hf(r) && !resolve_is_megatron(r)) {
        of_other_code(r, d, KEY_SOFTMAX_INPUT,
                      ": its code is younger than PyTorch 1.11",
                      "leave it out, or use --implementation hf");
    } else if (r->attention == ATTN_SDPA) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_SOFTMAX_INPUT,
                        "softmax_input beside attention 'sdpa', which came "
                        "with PyTorch 2.0");
        diag_hint(e, "use --attention eager");
    }
}

/* torchtitan/distributed/activation_checkpoint.py, _apply_layer_sac: whole
 * layers, one checkpoint each. */
static void check_every(const struct run *r, struct diag *d)
{
    if (!r->given[KEY_RECOMPUTE_EVERY]
        || r->setup.v[KEY_RECOMPUTE_EVERY].n == 1)
        return;
    if (r->recompute != RECOMP_FULL) {
        resolve_pointless(d, KEY_RECOMPUTE_EVERY, "recompute 'full'",
                          "add --recompute full");
        return;
    }
    if (!r->given[KEY_RECOMPUTE_LAYERS] && r->recompute_granularity <= 1)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_RECOMPUTE_EVERY, "recompute_every beside %s",
        r->given[KEY_RECOMPUTE_LAYERS] ? "recompute_layers"
                                       : "recompute_granularity");
    diag_hint(e, "leave it out, or leave %s out",
              r->given[KEY_RECOMPUTE_LAYERS] ? "recompute_layers"
                                             : "recompute_granularity");
}

/* Megatron's and DeepSpeed's checkpoints alone do so; with sequence parallelism
 * each rank has its part from the start (transformer_config.py). */
static void check_distributed(const struct run *r, struct diag *d)
{
    if (!r->distributes_saved)
        return;
    if (!resolve_is_megatron(r))
        resolve_pointless(d, KEY_DISTRIBUTE_SAVED_ACTIVATIONS,
                          "Megatron's layers", "add --framework megatron");
    else if (r->recompute != RECOMP_FULL)
        resolve_pointless(d, KEY_DISTRIBUTE_SAVED_ACTIVATIONS,
                          "recompute 'full'", "add --recompute full");
    else if (r->tp == 1)
        resolve_pointless(d, KEY_DISTRIBUTE_SAVED_ACTIVATIONS, "tp above 1",
                          "leave it out");
    else if (r->sequence_parallel)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT,
                              KEY_DISTRIBUTE_SAVED_ACTIVATIONS,
                              "distribute_saved_activations with "
                              "sequence_parallel, whose ranks have parts of "
                              "the sequence already"),
                  "leave one of the two out");
}

void resolve_check_recompute(const struct run *r, const struct spec *s,
                             struct diag *d)
{
    check_overlap(r, d);
    if (r->given[KEY_RECOMPUTE_MODULES] && r->recompute != RECOMP_SELECTIVE)
        resolve_pointless(d, KEY_RECOMPUTE_MODULES, "recompute 'selective'",
                          "add --recompute selective");
    if (r->given[KEY_RECOMPUTE_LAYERS] && r->recompute == RECOMP_NONE)
        resolve_pointless(d, KEY_RECOMPUTE_LAYERS, "recompute",
                          "add --recompute full or selective");
    if (r->given[KEY_RECOMPUTE_GRANULARITY] && r->recompute == RECOMP_NONE)
        resolve_pointless(d, KEY_RECOMPUTE_GRANULARITY, "recompute 'full'",
                          "add --recompute full");
    if (r->given[KEY_RECOMPUTE_REENTRANT] && r->recompute_reentrant
        && r->recompute != RECOMP_FULL)
        resolve_pointless(d, KEY_RECOMPUTE_REENTRANT, "recompute 'full'",
                          "add --recompute full");
    check_distributed(r, d);
    if (r->given[KEY_RECOMPUTE_IN_UNIT]
        && (r->engine != ENGINE_FSDP || !r->recompute_reentrant))
        resolve_pointless(d, KEY_RECOMPUTE_IN_UNIT,
                          "engine 'fsdp' and recompute_reentrant",
                          "leave it out");
    check_every(r, d);
    check_modules(r, s, d);
    check_selective(r, d);
    check_ops(r, d);
    check_compile(r, d);
    check_async_tp(r, d);
    check_softmax_input(r, d);
    check_dropout_mask(r, d);
    check_foreach(r, d);
    check_update_in_backward(r, d);
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
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, keys[i],
            "%s %" PRIu64 " with %" PRIu64 " layer%s per stage",
            setup_field(keys[i])->key, n, most, unit_s((double)most));
        diag_hint(e, "use %" PRIu64 " at most", most);
    }
}

/* Its kernels are of wgmma and TMA (flash-attention, hopper/setup.py:
 * sm90a). */
static void no_flash_3(const struct run *r, struct diag *d)
{
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_ATTENTION_KERNEL,
        "attention_kernel 'flash3' on %s: it is of Hopper", r->gpu.name);
    diag_hint(e, "use --attention-kernel %s",
              r->gpu.arch == ARCH_BLACKWELL ? "cudnn" : "flash2");
}

static void no_cudnn(const struct run *r, struct diag *d)
{
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_ATTENTION_KERNEL,
        "attention_kernel 'cudnn' on %s: it is of NVIDIA's GPUs", r->gpu.name);
    diag_hint(e, "use --attention-kernel flash2");
}

/* transformers casts to autocast's dtype, else to the weights', which is fp32
 * again (integrations/flash_attention.py, get_target_dtype): then the kernel
 * raises (flash_api.cpp, "only support fp16 and bf16 data type"). */
static void no_fp32_flash(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    const bool only =
        run_is_hf(r) && spec_hf_attention(s, ATTN_SDPA) == ATTN_FLASH;
    const char *other =
        "use --attention sdpa, whose memory-efficient kernel takes fp32, or "
        "--precision bf16-amp";
    if (spec_is_convnet(s) || s->heads == 0 || r->impl == IMPL_PAPER)
        return;
    if (resolve_is_megatron(r))
        other = "use --attention eager, all that Transformer Engine has in "
                "32 bits, or --precision bf16-mixed";
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT,
                    r->given[KEY_ATTENTION] ? KEY_ATTENTION : KEY_PRECISION,
                    "attention 'flash' on 32-bit numbers: FlashAttention takes "
                    "fp16 and bf16");
    if (only)
        other = "use --precision bf16-amp: this family has no other kernel";
    else if (run_is_hf(r) && spec_hf_attention(s, ATTN_SDPA) == ATTN_EAGER)
        other = "use --attention eager, or --precision bf16-amp";
    diag_hint(e, "%s", other);
}

/* BaichuanForCausalLM computes its own. */
static void no_loss_over_norms(const struct run *r, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LOSS,
                    "loss '%s' over a head whose rows are normed is not "
                    "modelled",
                    resolve_text(r, KEY_LOSS, buf));
    diag_hint(e, "use --loss standard");
}

void resolve_check_attention(const struct run *r, const struct spec *s,
                             struct diag *d)
{
    if (r->deterministic && r->loss == LOSS_FUSED && resolve_is_megatron(r)) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_DETERMINISTIC,
                        "deterministic with loss 'fused', which Megatron "
                        "refuses");
        diag_hint(e, "leave it out, or use --loss standard");
    }
    if (s->head_norm && run_is_hf(r) && r->loss != LOSS_STANDARD
        && r->loss != LOSS_XENTROPY)
        no_loss_over_norms(r, d);
    if (r->attention == ATTN_FLASH && r->prec.compute == DT_FP32)
        no_fp32_flash(r, s, d);
    if (r->attention == ATTN_FLASH && r->attention_kernel == KERNEL_FLASH_3
        && r->gpu.arch != ARCH_HOPPER)
        no_flash_3(r, d);
    if (r->attention_kernel == KERNEL_CUDNN && r->gpu.arch >= ARCH_CDNA2)
        no_cudnn(r, d);
    bool old = r->gpu.arch == ARCH_VOLTA || r->gpu.arch == ARCH_TURING;
    if (r->attention == ATTN_FLASH && old) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_ATTENTION,
            "attention 'flash' on %s, which FlashAttention does not support",
            r->gpu.name);
        if (run_is_hf(r) && spec_hf_attention(s, ATTN_SDPA) == ATTN_FLASH)
            diag_hint(e, "choose another --gpu, Ampere or newer: this family "
                         "has no other kernel");
        else if (run_is_hf(r) && spec_hf_attention(s, ATTN_SDPA) == ATTN_EAGER)
            diag_hint(e, "use --attention eager");
        else
            diag_hint(e, "use --attention sdpa");
    }
}
