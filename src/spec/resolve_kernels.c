/*
 * Owns the defaults of kernels, recomputation and buffers. Refuses to reject
 * (resolve_check.c).
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "data/constants.h"

#include <inttypes.h>

#include "base/banned.h"

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

/* Of compute capability 9.0, 10.0 and, since pytorch#170800, 10.3; RTX cards
 * are of others. */
static bool prefers_cudnn(const struct gpu *g)
{
    return gpu_capability(g) == 90 || gpu_capability(g) == 100;
}

/* Transformer Engine prefers FlashAttention before Hopper, cuDNN since
 * (attention/dot_product_attention/utils.py, get_attention_backend). So does
 * PyTorch's SDPA from 2.10 on, where it has cuDNN 9.15, as 2.11's wheels do
 * (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp,
 * check_prefer_cudnn_attention; pytorch#171627); 2.9 took FlashAttention 2
 * first. */
static enum attention_kernel default_kernel(const struct run *r)
{
    const bool since_hopper =
        r->gpu.arch == ARCH_HOPPER || r->gpu.arch == ARCH_BLACKWELL;
    const bool sdpa =
        run_is_hf(r) || r->impl == IMPL_TORCHTITAN || r->impl == IMPL_TORCHTUNE;
    if (r->impl == IMPL_MEGATRON && since_hopper)
        return KERNEL_CUDNN;
    return sdpa && prefers_cudnn(&r->gpu) ? KERNEL_CUDNN : KERNEL_FLASH_2;
}

/* Megatron's checkpoint is a function of autograd that runs backward inside,
 * as torch's with use_reentrant=True. transformers 5, torchtitan and torchtune
 * use the other, which stops at the last tensor that backward needs
 * (torch/utils/checkpoint.py); transformers 4 used the first. One that keeps a
 * file is such a function as well. */
static bool default_reentrant(const struct run *r)
{
    return run_is_megatron(r)
           || (r->given[KEY_OFFLOAD_ACTIVATIONS]
               && r->setup.v[KEY_OFFLOAD_ACTIVATIONS].n == OFFLOAD_NVME);
}

/* Of FSDP 1: transformers' layers are checkpoints themselves since 4.53
 * (modeling_layers.py, GradientCheckpointingLayer), before, the model's loop put
 * them around what FSDP had made of a layer. */
static void resolve_in_unit(struct run *r)
{
    const bool said = r->given[KEY_RECOMPUTE_IN_UNIT];
    const bool matters = r->engine == ENGINE_FSDP && run_is_hf(r)
                         && r->recompute == RECOMP_FULL
                         && r->recompute_reentrant;
    if (!said && !matters)
        return;
    r->recompute_in_unit = resolve_bool(r, KEY_RECOMPUTE_IN_UNIT, true);
    if (!said)
        resolve_assume(r, KEY_RECOMPUTE_IN_UNIT,
                       "checkpoints inside of FSDP's units, as transformers "
                       "has them since 4.53 (--recompute-in-unit)");
}

void resolve_recompute(struct run *r)
{
    enum recompute mode =
        r->given[KEY_RECOMPUTE_MODULES] ? RECOMP_SELECTIVE : RECOMP_NONE;
    r->recompute = (enum recompute)resolve_count(r, KEY_RECOMPUTE, mode);
    r->recompute_reentrant = default_reentrant(r);
    if (r->recompute == RECOMP_FULL || r->given[KEY_RECOMPUTE_REENTRANT])
        r->recompute_reentrant =
            resolve_bool(r, KEY_RECOMPUTE_REENTRANT, r->recompute_reentrant);
    resolve_in_unit(r);
    r->distributes_saved =
        resolve_bool(r, KEY_DISTRIBUTE_SAVED_ACTIVATIONS, false);
    if (r->recompute == RECOMP_NONE) {
        resolve_say(r, KEY_RECOMPUTE,
                    "no activation recomputation (--recompute)", SAY_NOTHING,
                    SAY_NOTHING);
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
    r->recompute_every = resolve_count(r, KEY_RECOMPUTE_EVERY, 1);
    r->recompute_layers =
        resolve_count(r, KEY_RECOMPUTE_LAYERS, most / r->recompute_every);
    if (r->recompute == RECOMP_OPS) /* a policy is one block's */
        r->recompute_granularity =
            resolve_force(r, KEY_RECOMPUTE_GRANULARITY, 1);
    else
        r->recompute_granularity =
            resolve_count(r, KEY_RECOMPUTE_GRANULARITY, 1);
}

/* One number says all of the model's, or none does: Phi's attention has none.
 */
static void echo_dropout(struct run *r, const struct spec *spec)
{
    const double p = r->hidden_dropout;
    const double all[] = { r->embed_dropout, r->attention_dropout,
                           r->head_dropout,
                           r->act_dropout > 0 ? r->act_dropout : p };
    if (spec_is_convnet(spec)) /* its list of layers has its own */
        return;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] < p || all[i] > p)
            return;
    resolve_real(r, KEY_DROPOUT, p);
}

static void resolve_dropout(struct run *r, const struct spec *spec)
{
    r->hidden_dropout = spec->hidden_dropout;
    r->embed_dropout = spec->embed_dropout;
    r->attention_dropout = spec->attention_dropout;
    r->head_dropout = spec->head_dropout;
    r->act_dropout = spec->act_dropout;
    if (r->impl == IMPL_TORCHTITAN || run_is_litgpt(r)) { /* none there */
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
    echo_dropout(r, spec);
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
    const bool defers = resolve_bool(r, KEY_DEFER_EMBEDDING_WGRAD, false);
    const uint64_t limit = resolve_count(r, KEY_WGRAD_DEFERRAL_LIMIT, 0);
    r->deferred_wgrads = !defers      ? 0
                         : limit == 0 ? r->grad_accum
                                      : min_u64(limit, r->grad_accum);
    if (r->deterministic)
        resolve_assume(r, KEY_DETERMINISTIC,
                       "deterministic kernels%s, as in Megatron-LM's own tests "
                       "(--deterministic%s)",
                       r->wgrad_fusion ? "" : ", weight gradients not fused",
                       r->wgrad_fusion ? "" : ", --grad-accum-fusion");
}

/* transformers' and torchtune's classes are written out in Python; Liger's and
 * PyTorch's since 2.9 (pytorch#153666), which torchtitan calls since 19 March
 * 2025 (torchtitan#985), are one kernel. Before that F.rms_norm was a chain too,
 * as was torchtitan's own (torchtitan/models/norms.py @9dec370, norm_type
 * "rmsnorm"). A compiler makes one kernel of either, in layers: the last norm is
 * not among them. */
static void resolve_norm(struct run *r, const struct spec *spec)
{
    const bool hf = run_is_hf(r) && r->impl != IMPL_HF_LIGER;
    const bool eager = hf || r->impl == IMPL_TORCHTUNE;
    r->norm_kernel = (enum norm_kernel)resolve_count(
        r, KEY_NORM_KERNEL, eager ? NORM_EAGER : NORM_FUSED);
    if (r->impl == IMPL_TORCHTITAN && spec->norm == NORM_RMS)
        resolve_assume(r, KEY_NORM_KERNEL,
                       "%s in one kernel, as PyTorch since 2.9 "
                       "(--norm-kernel)",
                       r->compile ? "the last RMSNorm, which is not compiled,"
                                  : "RMSNorm");
}

static void say_attention(struct run *r)
{
    if (r->attention == ATTN_FLASH && !r->given[KEY_ATTENTION_KERNEL])
        resolve_say(r, KEY_ATTENTION,
                    "# attention, as fast as # (--attention, "
                    "--attention-kernel)",
                    resolve_word(r, KEY_ATTENTION),
                    resolve_word(r, KEY_ATTENTION_KERNEL));
    else
        resolve_say(r, KEY_ATTENTION, "# attention (--attention)",
                    resolve_word(r, KEY_ATTENTION), SAY_NOTHING);
}

static void resolve_attention(struct run *r, const struct spec *spec)
{
    /* FlashAttention takes fp16 and bf16 (flash_api.cpp, mha_fwd) */
    const bool half = r->prec.compute != DT_FP32;
    enum attention kernel =
        half && has_flash(r->gpu.arch) ? ATTN_FLASH : ATTN_SDPA;
    if (r->mask == MASK_PADDING) /* transformers' default, which has a mask */
        kernel = ATTN_SDPA;
    if (run_is_hf(r))
        kernel = spec_hf_attention(spec, kernel);
    /* transformers' Trainer cuts sequences for no other */
    if (r->cp > 1 && run_is_hf(r) && r->given[KEY_CP_COMM]
        && r->setup.v[KEY_CP_COMM].n != CP_A2A)
        kernel = ATTN_SDPA;
    /* Transformer Engine has no other in 32 bits (get_attention_backend) */
    const bool unfused = r->impl == IMPL_MEGATRON && !half;
    if (r->impl == IMPL_PAPER || unfused || r->impl == IMPL_MEGATRON_LOCAL)
        kernel = ATTN_EAGER; /* they spell it out */
    r->attention = (enum attention)resolve_count(r, KEY_ATTENTION, kernel);
    const uint64_t flash =
        resolve_count(r, KEY_ATTENTION_KERNEL, default_kernel(r));
    /* SDPA's is PyTorch's own, whatever else is installed */
    r->attention_kernel = r->attention == ATTN_FLASH
                              ? (enum attention_kernel)flash
                              : default_kernel(r);
}

/* Kernels of layers with a state. */
static void resolve_ssm(struct run *r, const struct spec *spec)
{
    r->ssm_kernel =
        (enum ssm_kernel)resolve_count(r, KEY_SSM_KERNEL, SSM_KERNEL_FUSED);
    if (spec->mixer != MIX_ATTENTION && r->ssm_kernel == SSM_KERNEL_TORCH)
        resolve_note(r, KEY_COUNT,
                     "layers with a state as loops of small operations, which "
                     "no utilisation here was measured with (--ssm-kernel)");
    else if (spec->mixer != MIX_ATTENTION)
        resolve_assume(r, KEY_SSM_KERNEL, "the kernels of %s (--ssm-kernel)",
                       spec->mixer == MIX_CONV ? "causal-conv1d"
                       : spec->mixer == MIX_DELTA
                           ? "flash-linear-attention and causal-conv1d"
                           : "mamba-ssm and causal-conv1d");
}

static void resolve_ring(struct run *r)
{
    const bool ulysses = r->cp > 1 && run_is_hf(r);
    r->cp_comm =
        (enum cp_comm)resolve_count(r, KEY_CP_COMM,
                                    ulysses                  ? CP_A2A
                                    : run_has_torch_rings(r) ? CP_ALL_GATHER
                                                             : CP_P2P);
    if (r->cp > 1 && run_has_torch_rings(r))
        resolve_assume(r, KEY_CP_COMM,
                       "keys and values of all ranks of cp are gathered "
                       "(--cp-comm)");
    if (r->cp_comm == CP_A2A && ulysses)
        resolve_assume(r, KEY_CP_COMM,
                       "Ulysses: ranks of cp exchange heads for tokens around "
                       "attention (--cp-comm)");
}

static void resolve_routing(struct run *r)
{
    r->moe_dispatcher = (enum moe_dispatcher)resolve_count(
        r, KEY_MOE_DISPATCHER, DISPATCH_ALLTOALL);
    r->moe_flex_backend = (enum moe_flex_backend)resolve_count(
        r, KEY_MOE_FLEX_BACKEND, FLEX_DEEPEP);
    if (r->given[KEY_MOE_FLEX_BACKEND] && r->moe_dispatcher != DISPATCH_FLEX
        && resolve_is_megatron(r))
        resolve_note(r, KEY_MOE_FLEX_BACKEND,
                     "'moe_flex_dispatcher_backend' has no effect without "
                     "--moe-dispatcher flex");
    r->moe_imbalance = resolve_real(r, KEY_MOE_IMBALANCE, 1);
    if (r->given[KEY_MOE_CAPACITY_FACTOR]
        && resolve_is_megatron(r)) /* dropless has no number */
        r->moe_capacity = r->setup.v[KEY_MOE_CAPACITY_FACTOR].x;
    r->moe_padded = resolve_bool(r, KEY_MOE_PAD_TO_CAPACITY, false)
                    && resolve_is_megatron(r);
    r->rope_fusion =
        resolve_bool(r, KEY_ROPE_FUSION, false) && r->impl == IMPL_MEGATRON;
    r->moe_permute_fusion = resolve_bool(r, KEY_MOE_PERMUTE_FUSION, false)
                            && r->impl == IMPL_MEGATRON;
    if (r->setup.v[KEY_MOE_PERMUTE_FUSION].n != 0 && !r->moe_permute_fusion
        && resolve_is_megatron(r))
        resolve_note(r, KEY_MOE_PERMUTE_FUSION,
                     "'moe_permute_fusion' has no effect without Transformer "
                     "Engine, whose kernels it means");
    r->op_fuser = resolve_bool(r, KEY_OP_FUSER, false)
                  && r->impl == IMPL_MEGATRON && r->grouped_gemm;
    r->moe_router_fp32 =
        resolve_count(r, KEY_MOE_ROUTER_DTYPE, ROUTER_DTYPE_NONE)
        == ROUTER_DTYPE_FP32;
    r->moe_aux_loss =
        (enum moe_aux_loss)resolve_count(r, KEY_MOE_AUX_LOSS, AUX_LOSS_NONE);
}

/* Its layers under an engine of its own: FSDP 1 is others'. */
static bool is_titan(const struct run *r)
{
    return r->impl == IMPL_TORCHTITAN && r->engine != ENGINE_FSDP;
}

/* LitGPT's scripts run the head over pieces with adapters alone
 * (litgpt/finetune/lora.py, full.py). torchtitan compiles its loss beside its
 * layers since March 2025 (components/loss.py; configs.py, CompileConfig). */
static enum loss default_loss(const struct run *r)
{
    if (is_titan(r))
        return r->compile ? LOSS_FUSED : LOSS_STANDARD;
    const bool adapts =
        (r->given[KEY_LORA_RANK] && r->setup.v[KEY_LORA_RANK].n > 0)
        || r->given[KEY_PEFT_TYPE];
    return run_is_litgpt(r) && adapts ? LOSS_CHUNKED : LOSS_STANDARD;
}

void resolve_kernels(struct run *r, const struct spec *spec)
{
    resolve_mask(r, spec);
    resolve_attention(r, spec);
    r->compile = resolve_bool(r, KEY_COMPILE, false);
    r->loss = (enum loss)resolve_count(r, KEY_LOSS, default_loss(r));
    r->keep_outputs = resolve_bool(r, KEY_KEEP_OUTPUTS, run_is_litgpt(r));
    r->drop_outputs = resolve_bool(r, KEY_DROP_OUTPUTS, false);
    r->fp32_logits = resolve_bool(r, KEY_FP32_LOGITS, false);
    r->shift_logits = resolve_bool(
        r, KEY_SHIFT_LOGITS,
        r->fp32_logits || (run_is_litgpt(r) && r->loss == LOSS_STANDARD));
    r->mask_per_head = resolve_bool(r, KEY_MASK_PER_HEAD, false);
    if (r->impl == IMPL_PAPER)
        resolve_note(r, KEY_COUNT,
                     "attention spelled out, dropout everywhere, as in the "
                     "paper (--implementation)");
    else if (!spec_is_convnet(spec) && spec->heads > 0)
        say_attention(r);
    resolve_dropout(r, spec);
    r->tp_comm_overlap = resolve_bool(r, KEY_TP_COMM_OVERLAP, false);
    r->async_tp = resolve_bool(r, KEY_ASYNC_TP, false);
    resolve_graphs(r);
    r->ep_overlap = resolve_bool(r, KEY_EP_OVERLAP, false);
    r->ep_overlap_early = resolve_bool(r, KEY_EP_OVERLAP_EARLY, false);
    r->delay_wgrad = resolve_bool(r, KEY_DELAY_WGRAD, false);
    r->plain_softmax = !resolve_bool(r, KEY_FUSED_SOFTMAX, true);
    /* apply_query_key_layer_scaling brings it, on by default in the fork */
    r->softmax_fp32 = resolve_bool(r, KEY_SOFTMAX_FP32,
                                   r->framework == FW_MEGATRON_DEEPSPEED);
    r->softmax_input = resolve_bool(r, KEY_SOFTMAX_INPUT, false);
    r->dropout_mask = resolve_bool(r, KEY_DROPOUT_MASK, false);
    r->grouped_gemm =
        resolve_bool(r, KEY_GROUPED_GEMM, r->impl != IMPL_MEGATRON_LOCAL);
    r->replay_batches = resolve_bool(r, KEY_REPLAY_BATCHES, false);
    resolve_ssm(r, spec);
    resolve_norm(r, spec);
    r->ce_fusion = (enum ce_fusion)resolve_count(r, KEY_CE_FUSION, CE_TE);
    resolve_ring(r);
    resolve_routing(r);
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
    DS_PERSISTENCE_THRESHOLD = 100000,
    DS_OPTIMIZER_BUFFERS = 4,
    DS_PARAM_BUFFERS = 5,
    DS_PARAM_BUFFER_SIZE = 100000000,
    DS_MAX_IN_CPU = 1000000000
};
/* torch/nn/parallel/distributed.py, bucket_cap_mb; torchtitan's parallelize.py,
 * apply_ddp, July 2024 to March 2026 */
enum { DDP_BUCKET_BYTES = 25 << 20, TORCHTITAN_DDP_BUCKET_BYTES = 100 << 20 };

static bool default_overlap(const struct run *r)
{
    if (r->engine == ENGINE_DEEPSPEED)
        return r->zero == 3; /* its config: false for stages 1 and 2 */
    return r->engine != ENGINE_MEGATRON; /* --overlap-grad-reduce is a flag */
}

/* transformers/integrations/deepspeed.py, trainer_config_finalize: what "auto"
 * becomes, of the model's hidden size. */
static uint64_t bucket(struct run *r, enum setup_key key, uint64_t usual,
                       uint64_t trainers)
{
    const bool automatic = r->setup.automatic[key] && trainers > 0;
    return resolve_count(r, key, automatic ? trainers : usual);
}

static void say_buckets(struct run *r)
{
    if (r->engine != ENGINE_DEEPSPEED || r->zero == 0)
        return;
    if (r->setup.automatic[KEY_REDUCE_BUCKET])
        resolve_assume(r, KEY_REDUCE_BUCKET,
                       "buckets as the Trainer fills in \"auto\", by the "
                       "hidden size (--reduce-bucket)");
    else
        resolve_say(r, KEY_REDUCE_BUCKET,
                    "DeepSpeed's own buckets, not the Trainer's \"auto\" "
                    "(--reduce-bucket)",
                    SAY_NOTHING, SAY_NOTHING);
}

/* DeepSpeed's defaults: runtime/zero/offload_config.py. */
static void resolve_offload(struct run *r)
{
    r->offload_params =
        (enum offload)resolve_count(r, KEY_OFFLOAD_PARAMS, OFFLOAD_NONE);
    r->offload_optimizer = (enum offload)resolve_count(
        r, KEY_OFFLOAD_OPTIMIZER,
        run_is_fsdp(r) ? r->offload_params : OFFLOAD_NONE);
    r->offload_ratio = resolve_real(r, KEY_OFFLOAD_RATIO, 1);
    r->away_layers = resolve_count(r, KEY_CPU_OFFLOADING_NUM_LAYERS, 0);
    r->offload_modules = resolve_count(r, KEY_OFFLOAD_MODULES, 0);
    if (r->offload_modules != 0)
        r->offload_min_elems = resolve_count(r, KEY_MIN_OFFLOADED_TENSOR_SIZE,
                                             MLM_OFFLOAD_MIN_ELEMS);
    r->offload_activations = (enum offload)resolve_count(
        r, KEY_OFFLOAD_ACTIVATIONS,
        r->away_layers > 0 || r->offload_modules != 0 ? OFFLOAD_CPU
                                                      : OFFLOAD_NONE);
    r->pin_memory = resolve_bool(r, KEY_PIN_MEMORY, true);
    r->optimizer_buffers =
        resolve_count(r, KEY_OPTIMIZER_BUFFERS, DS_OPTIMIZER_BUFFERS);
    r->param_buffers = resolve_count(r, KEY_PARAM_BUFFERS, DS_PARAM_BUFFERS);
    r->param_buffer_elems =
        resolve_count(r, KEY_PARAM_BUFFER_SIZE, DS_PARAM_BUFFER_SIZE);
    r->max_in_cpu = resolve_count(r, KEY_MAX_IN_CPU, DS_MAX_IN_CPU);
    r->pipeline_read = resolve_bool(r, KEY_PIPELINE_READ, false);
    r->pipeline_write = resolve_bool(r, KEY_PIPELINE_WRITE, false);
    r->nvme_bytes_s = (double)resolve_count(r, KEY_NVME_BANDWIDTH,
                                            (uint64_t)NVME_NODE_READ_BYTES_S);
}

/* Megatron-DeepSpeed came with such versions. */
static bool resolve_old_zero3(const struct run *r)
{
    return run_zero_is(r, 3) && r->impl == IMPL_MEGATRON_LOCAL
           && run_is_old_deepspeed(r);
}

/* DeepSpeed's. */
static void resolve_zero_buffers(struct run *r, const struct spec *spec)
{
    const uint64_t h = spec->hidden;
    r->reduce_bucket = bucket(r, KEY_REDUCE_BUCKET, DS_BUCKET, h * h);
    r->allgather_bucket = resolve_count(r, KEY_ALLGATHER_BUCKET, DS_BUCKET);
    r->prefetch_bucket =
        bucket(r, KEY_PREFETCH_BUCKET, DS_PREFETCH_BUCKET, h * h * 9 / 10);
    r->max_live_params =
        resolve_count(r, KEY_MAX_LIVE_PARAMS, DS_MAX_LIVE_PARAMS);
    r->sub_group_size = resolve_count(r, KEY_SUB_GROUP_SIZE, DS_SUB_GROUP_SIZE);
    r->hpz_partition_size = resolve_count(r, KEY_HPZ_PARTITION_SIZE, 1);
    r->quantized_weights = resolve_bool(r, KEY_ZERO_QUANTIZED_WEIGHTS, false);
    r->quantized_gradients =
        resolve_bool(r, KEY_ZERO_QUANTIZED_GRADIENTS, false);
    r->persistence_threshold =
        bucket(r, KEY_PERSISTENCE_THRESHOLD, DS_PERSISTENCE_THRESHOLD, 10 * h);
    r->zero3_lists =
        resolve_bool(r, KEY_ZERO3_LISTS, resolve_old_zero3(r)) && r->zero == 3;
    if (r->zero3_lists && r->gpus > 1)
        resolve_assume(r, KEY_ZERO3_LISTS,
                       "ZeRO-3 as DeepSpeed before 0.6 has it, with "
                       "collectives of lists (--no-zero3-lists)");
    r->zero_flatten =
        (enum zero_flatten)resolve_count(r, KEY_ZERO_FLATTEN, FLATTEN_GPU);
    r->zero_bucket =
        (enum zero_bucket)resolve_count(r, KEY_ZERO_BUCKET, BUCKET_GRADIENT);
    r->zero_overflow =
        (enum zero_overflow)resolve_count(r, KEY_ZERO_OVERFLOW, OVERFLOW_FREED);
    r->zero_rank =
        (enum zero_rank)resolve_count(r, KEY_ZERO_RANK, ZERO_RANK_FULLEST);
    r->contiguous_gradients = resolve_bool(r, KEY_CONTIGUOUS_GRADIENTS, true);
    r->round_robin_gradients =
        resolve_bool(r, KEY_ROUND_ROBIN_GRADIENTS, false);
    r->multi_rank_sums = resolve_bool(r, KEY_MULTI_RANK_BUCKET_ALLREDUCE,
                                      !run_is_old_deepspeed(r));
}

/* PyTorch's FSDP and pipelines. */
static void resolve_fsdp_buffers(struct run *r)
{
    /* torchtune's configurations: custom_sharded_layers; torchtitan since July
       2025 (#1094): distributed/fsdp.py */
    const bool ends = r->impl == IMPL_TORCHTUNE || is_titan(r);
    r->fsdp_units = (enum fsdp_units)resolve_count(
        r, KEY_FSDP_UNITS, ends ? FSDP_ENDS : FSDP_LAYERS);
    r->grad_sync = (enum grad_sync)resolve_count(
        r, KEY_GRAD_SYNC,
        r->framework == FW_HF || run_torch_pipelines(r) ? SYNC_LAST
                                                        : SYNC_EACH);
    r->return_outputs =
        resolve_bool(r, KEY_RETURN_OUTPUTS, false) && run_torch_pipelines(r);
    r->keep_reduce_scatter = resolve_bool(r, KEY_KEEP_REDUCE_SCATTER, false)
                             && run_torch_pipelines(r) && run_is_fsdp(r)
                             && r->zero != 0 && r->grad_sync == SYNC_LAST;
    /* torchtitan's "default": not with stages (distributed/fsdp.py) */
    r->reshard =
        resolve_bool(r, KEY_RESHARD_AFTER_FORWARD,
                     run_is_fsdp(r) && r->zero == 3 && !run_torch_pipelines(r));
    /* accelerate launch, the Trainer (training_args.py) and Lightning; torch's
       own default, and that of Accelerate's plugin in a program, is false */
    r->use_orig_params =
        resolve_bool(r, KEY_USE_ORIG_PARAMS, r->engine == ENGINE_FSDP);
}

void resolve_buffers(struct run *r, const struct spec *spec)
{
    resolve_zero_buffers(r, spec);
    r->ddp_bucket_bytes =
        resolve_count(r, KEY_DDP_BUCKET,
                      r->impl == IMPL_TORCHTITAN ? TORCHTITAN_DDP_BUCKET_BYTES
                                                 : DDP_BUCKET_BYTES);
    r->cuda_context_bytes =
        resolve_count(r, KEY_CUDA_CONTEXT, run_cuda_context(r).bytes);
    resolve_fsdp_buffers(r);
    r->async_tp_allreduce = resolve_bool(r, KEY_ASYNC_TP_ALLREDUCE,
                                         r->framework != FW_MEGATRON_DEEPSPEED);
    r->scatter_gather = resolve_bool(r, KEY_SCATTER_GATHER,
                                     r->framework == FW_MEGATRON_DEEPSPEED
                                         && r->engine == ENGINE_MEGATRON);
    r->overlap_comm = resolve_bool(r, KEY_OVERLAP_COMM, default_overlap(r));
    resolve_offload(r);
    say_buckets(r);
}
