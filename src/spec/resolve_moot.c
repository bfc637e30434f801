/*
 * Owns what is said of keys the user gave that change nothing. Setup files are
 * shared between frameworks, so such a key is no error. Changes no value,
 * rejects nothing.
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "base/banned.h"

enum {
    TORCHTITAN_EIGHT = 1u << 0, /* products in 8 bits */
    NO_DEEPSPEED = 1u << 1,
    NO_ZERO = 1u << 2, /* of DeepSpeed */
    NO_ZERO_3 = 1u << 3,
    SELECTIVE = 1u << 4,
    MEGATRON = 1u << 5,
    NO_MEGATRON = 1u << 6,
    TORCHTITAN_HALF = 1u << 7, /* products in 16 bits */
    NO_DROPOUT = 1u << 8,      /* but asked for */
    PAPER = 1u << 9,
    PAPER_MODULES = 1u << 10,
    NO_OPTIMIZER = 1u << 11,
    CPU_OPTIMIZER = 1u << 12,
    NO_DDP = 1u << 13,
    FAST = 1u << 14,
    PLAIN_LOSS = 1u << 15,
    NO_FSDP = 1u << 16,
    NO_CP = 1u << 17,
    NO_EXPERTS = 1u << 18,
    CONVOLUTIONS = 1u << 19,
    FLATTENS_NOT = 1u << 21,   /* no ZeRO-1 or -2 */
    OWN_GRADS = 1u << 20,      /* neither DDP nor FSDP on the GPU */
    NO_LIST_GATHER = 1u << 22, /* but for the fork's DeepSpeed */
    NO_SPELLED_OUT = 1u << 23, /* of Megatron's own attention */
    NO_EP = 1u << 24,
    NO_STATE = 1u << 25,    /* attention in every layer */
    NO_HEADS = 1u << 26,    /* state spaces in every layer */
    NO_WORDS = 1u << 27,    /* a diffusion transformer */
    NO_OVERFLOW = 1u << 28, /* of ZeRO-1 and -2 on the GPU */
    NO_DEFERRED = 1u << 30, /* FSDP with one micro-batch a step, unsharded */
    NO_PARTITION = 1u << 29 /* whole tensors of a rank's part */
};

static unsigned circumstances(const struct run *r, const struct spec *spec)
{
    bool ds = r->engine == ENGINE_DEEPSPEED;
    bool titan = r->impl == IMPL_TORCHTITAN, paper = r->impl == IMPL_PAPER;
    uint64_t core = UINT64_C(1) << REMOD_CORE_ATTN;
    const bool gathers = r->tp > 1 && r->sequence_parallel; /* in 8 bits */
    unsigned now = titan && r->prec.fp8 && !gathers ? TORCHTITAN_EIGHT : 0;
    now |= ds ? 0 : NO_DEEPSPEED;
    now |= ds && r->zero != 0 ? 0 : NO_ZERO;
    now |= ds && r->zero == 3 ? 0 : NO_ZERO_3;
    now |= r->recompute == RECOMP_SELECTIVE ? SELECTIVE : 0;
    now |= resolve_is_megatron(r) ? MEGATRON : NO_MEGATRON;
    now |= titan && r->prec.compute != DT_FP32 ? TORCHTITAN_HALF : 0;
    now |= (titan || run_is_litgpt(r)) && r->setup.v[KEY_DROPOUT].x > 0
               ? NO_DROPOUT
               : 0;
    now |= paper ? PAPER : 0;
    now |= paper && (r->recompute_modules & ~core) != 0 ? PAPER_MODULES : 0;
    now |= r->optimizer == OPT_NONE ? NO_OPTIMIZER : 0;
    now |= r->offload_optimizer != OFFLOAD_NONE ? CPU_OPTIMIZER : 0;
    now |= r->engine == ENGINE_DDP ? 0 : NO_DDP;
    now |= run_flattens(r) ? 0 : FLATTENS_NOT;
    now |=
        run_is_fsdp(r) && r->zero != 0 && r->grad_accum > 1 ? 0 : NO_DEFERRED;
    now |= run_overflows(r) ? 0 : NO_OVERFLOW;
    now |= run_is_zero_1_or_2(r) && r->shard > 1 ? 0 : NO_PARTITION;
    now |= run_keeps_grads(r) ? 0 : OWN_GRADS;
    now |= r->impl == IMPL_MEGATRON_LOCAL && r->attention == ATTN_EAGER
               ? 0
               : NO_SPELLED_OUT;
    now |= r->ep > 1 || spec->experts == 0 ? 0 : NO_EP; /* one note */
    now |= r->fast ? FAST : 0;
    now |= run_pipelines(r) ? 0 : NO_LIST_GATHER;
    now |= run_is_fsdp(r) ? 0 : NO_FSDP;
    now |= r->loss != LOSS_FUSED ? PLAIN_LOSS : 0;
    now |= r->cp == 1 ? NO_CP : 0;
    now |= spec->experts == 0 ? NO_EXPERTS : 0;
    now |= spec_is_convnet(spec) ? CONVOLUTIONS : 0;
    now |= spec->mixer == MIX_ATTENTION ? NO_STATE : 0;
    now |= spec->mixer != MIX_ATTENTION && spec->heads == 0 ? NO_HEADS : 0;
    now |= spec->family == FAM_DIT || spec->family == FAM_DIT_DIFFUSERS
               ? NO_WORDS
               : 0;
    return now;
}

#define ANY UINT64_MAX

/* A key that was given as `value` changes nothing when any of `when` holds. */
static const struct moot {
    enum setup_key key;
    unsigned when;
    uint64_t value;
    const char *why; /* after "'key' has no effect" */
} moots[] = {
    { KEY_DDP_BUCKET, NO_DDP, ANY, " outside DDP" },
    { KEY_DDP_BUCKET, FAST, ANY, ": buckets add up to the gradients" },
    { KEY_ALLGATHER_BUCKET, NO_LIST_GATHER, ANY,
      ": weights are gathered in place (all_gather_into_tensor)" },
    { KEY_ALLGATHER_BUCKET, FAST, ANY,
      " with fast: the allocator is not simulated" },
    { KEY_ALLOCATOR, FAST, ALLOC_EXPANDABLE,
      " with fast: the allocator is not simulated" },
    { KEY_LENGTHS, FAST, ANY, " with fast: the allocator is not simulated" },
    { KEY_LENGTH_MEAN, FAST, ANY,
      " with fast: the allocator is not simulated" },
    { KEY_FP8_RECIPE, TORCHTITAN_EIGHT, ANY,
      " on memory in torchtitan: inputs are kept in 16 bits" },
    { KEY_REDUCE_BUCKET, NO_DEEPSPEED, ANY, " without DeepSpeed" },
    { KEY_OVERLAP_COMM, NO_ZERO, ANY, " on memory outside DeepSpeed's ZeRO" },
    { KEY_PREFETCH_BUCKET, NO_ZERO_3, ANY, " outside DeepSpeed's ZeRO-3" },
    { KEY_MAX_LIVE_PARAMS, NO_ZERO_3, ANY, " outside DeepSpeed's ZeRO-3" },
    { KEY_SUB_GROUP_SIZE, NO_ZERO_3, ANY, " outside DeepSpeed's ZeRO-3" },
    { KEY_HPZ_PARTITION_SIZE, NO_ZERO_3, ANY, " outside DeepSpeed's ZeRO-3" },
    { KEY_MICS_SHARD_SIZE, NO_ZERO_3, ANY, " outside DeepSpeed's ZeRO-3" },
    { KEY_PERSISTENCE_THRESHOLD, NO_ZERO_3, ANY,
      " outside DeepSpeed's ZeRO-3" },
    { KEY_FSDP_UNITS, NO_FSDP, ANY, " without FSDP" },
    { KEY_RESHARD_AFTER_FORWARD, NO_FSDP, ANY, " without FSDP" },
    { KEY_USE_ORIG_PARAMS, NO_FSDP, ANY, " without FSDP" },
    { KEY_GRAD_SYNC, NO_DEFERRED, ANY,
      " but where FSDP shards gradients of several micro-batches" },
    { KEY_ZERO_FLATTEN, FLATTENS_NOT, ANY,
      " but in DeepSpeed's ZeRO-1 and -2" },
    { KEY_ZERO_BUCKET, FLATTENS_NOT, ANY, " but in DeepSpeed's ZeRO-1 and -2" },
    { KEY_ZERO_OVERFLOW, NO_OVERFLOW, ANY,
      " but in DeepSpeed's ZeRO-1 and -2 in fp16, stepped on the "
      "GPU" },
    { KEY_ZERO_RANK, NO_PARTITION, ANY,
      " but in DeepSpeed's ZeRO-1 and -2 on several ranks" },
    { KEY_ZERO_FLATTEN, FAST, ANY, ": the allocator is not simulated" },
    { KEY_ZERO_GRAD_SET_TO_NONE, OWN_GRADS, false,
      ": the engine frees or keeps gradients by itself" },
    { KEY_RECOMPUTE_LAYERS, SELECTIVE, ANY,
      ": selective recomputation is that of every layer" },
    { KEY_RECOMPUTE_GRANULARITY, SELECTIVE, ANY, " without recompute 'full'" },
    { KEY_RECOMPUTE_MODULES, PAPER_MODULES, ANY,
      " in 'paper' but for core_attn" },
    { KEY_LOSS, MEGATRON, LOSS_XENTROPY,
      ": Megatron's vocabulary-parallel cross entropy, in place on fp32 "
      "logits, is modelled" },
    { KEY_LOSS, PAPER, LOSS_XENTROPY, ": the paper keeps the logits in fp32" },
    { KEY_CE_FUSION, PLAIN_LOSS | NO_MEGATRON, ANY,
      " but in Megatron with --loss fused" },
    { KEY_SSM_KERNEL, NO_STATE, ANY, " without layers that have a state" },
    { KEY_CP_COMM, NO_CP, ANY, " without cp" },
    { KEY_GRAD_ACCUM_FUSION, NO_MEGATRON, ANY, " outside Megatron" },
    { KEY_ETP, NO_EXPERTS, ANY, " without experts" },
    { KEY_FUSED_SOFTMAX, NO_SPELLED_OUT, ANY,
      " but in Megatron's own layers with eager attention" },
    { KEY_SOFTMAX_FP32, NO_SPELLED_OUT, ANY,
      " but in Megatron's own layers with eager attention" },
    { KEY_GROUPED_GEMM, NO_MEGATRON | NO_EXPERTS, ANY,
      " but in Megatron with experts" },
    { KEY_MOE_DISPATCHER, NO_MEGATRON | NO_EXPERTS, ANY,
      " but in Megatron with experts" },
    { KEY_MOE_FLEX_BACKEND, NO_MEGATRON | NO_EXPERTS, ANY,
      " but in Megatron with experts" },
    { KEY_MOE_IMBALANCE, NO_EXPERTS, ANY, " without experts" },
    { KEY_MOE_IMBALANCE, NO_EP, ANY,
      " without expert parallelism: a rank's tokens stay with it" },
    { KEY_MOE_CAPACITY_FACTOR, NO_MEGATRON | NO_EXPERTS, ANY,
      " but in Megatron with experts" },
    { KEY_MOE_PAD_TO_CAPACITY, NO_MEGATRON | NO_EXPERTS, ANY,
      " but in Megatron with experts" },
    { KEY_MOE_PERMUTE_FUSION, NO_MEGATRON | NO_EXPERTS, ANY,
      " but in Megatron with experts" },
    { KEY_MOE_ROUTER_DTYPE, NO_MEGATRON | NO_EXPERTS, ANY,
      " but in Megatron with experts" },
    { KEY_MOE_AUX_LOSS, NO_MEGATRON | NO_EXPERTS, ANY,
      " but in Megatron with experts" },
    { KEY_REPLAY_BATCHES, NO_MEGATRON, ANY, " outside Megatron" },
    { KEY_LOSS, PAPER, LOSS_FUSED, ": the paper keeps the logits in fp32" },
    { KEY_ATTENTION, MEGATRON | TORCHTITAN_HALF, ATTN_SDPA,
      " here: sdpa and flash are one fused kernel" },
    { KEY_ATTENTION, CONVOLUTIONS, ANY, ": convolutions have none" },
    { KEY_ATTENTION, NO_HEADS, ANY, ": state-space layers have none" },
    { KEY_DROPOUT, NO_HEADS, ANY, ": state-space layers have none" },
    { KEY_VOCAB_MULTIPLE, NO_WORDS, ANY, ": the model has no vocabulary" },
    { KEY_ATTENTION, PAPER, ANY, ": the paper spells attention out" },
    { KEY_DROPOUT, PAPER, ANY, ": the paper has its masks everywhere" },
    { KEY_DROPOUT, NO_DROPOUT, ANY,
      ": torchtitan's and LitGPT's layers have none" },
    { KEY_ATTENTION_MASK, NO_MEGATRON, MASK_DATALOADER, " outside Megatron" },
    { KEY_OPTIMIZER_IMPL, NO_OPTIMIZER, ANY, " without an optimizer" },
    { KEY_OPTIMIZER_IMPL, CPU_OPTIMIZER, ANY, ": the step is the CPU's" },
};

static void say_moot(struct run *r, const struct spec *spec)
{
    unsigned now = circumstances(r, spec);
    for (size_t i = 0; i < sizeof(moots) / sizeof(moots[0]); i++) {
        const struct moot *m = &moots[i];
        if (!r->given[m->key] || (m->when & now) == 0)
            continue;
        if (m->value == ANY || m->value == r->setup.v[m->key].n)
            resolve_note(r, m->key, "'%s' has no effect%s",
                         setup_field(m->key)->key, m->why);
    }
}

/* ZeRO-1 and -2 without use_multi_rank_bucket_allreduce. */
static bool leaves_sums(const struct run *r)
{
    return run_is_zero_1_or_2(r) && r->shard > 1 && !run_sums_whole(r);
}

static bool sums_in_layers(const struct run *r)
{
    return run_is_megatron(r) && !run_sums_as_te(r) && r->tp > 1
           && !r->sequence_parallel;
}

/* Keys of what a setup does not have: what lies beside the GPU, 8-bit states.
 */
static void say_moot_parts(struct run *r, const struct spec *spec)
{
    const bool states = r->offload_optimizer == OFFLOAD_NVME;
    const bool weights = r->offload_params == OFFLOAD_NVME;
    const struct {
        enum setup_key key;
        bool used;
        const char *why;
    } keys[] = {
        { KEY_MICS_HIERARCHICAL, r->mics, " without mics_shard_size" },
        { KEY_ZERO_QUANTIZED_WEIGHTS, run_gathers_in_8_bits(r),
          " outside DeepSpeed's ZeRO-3 on several ranks" },
        { KEY_ZERO_QUANTIZED_GRADIENTS, run_reduces_in_4_bits(r),
          " but in DeepSpeed's ZeRO-3 on several nodes" },
        { KEY_CONTIGUOUS_GRADIENTS, run_is_loose(r) || r->contiguous_gradients,
          " but in DeepSpeed's ZeRO, and there not under a pipeline, "
          "BF16_Optimizer or, below ZeRO-3, with an offloaded optimizer" },
        { KEY_ROUND_ROBIN_GRADIENTS,
          run_deals_tensors(r) || !r->round_robin_gradients,
          " but in DeepSpeed's ZeRO-1 and -2 on several ranks, and there not "
          "under a pipeline or BF16_Optimizer" },
        { KEY_MULTI_RANK_BUCKET_ALLREDUCE, r->multi_rank_sums || leaves_sums(r),
          " but in DeepSpeed's ZeRO-1 and -2 on several ranks, and there not "
          "under BF16_Optimizer or without contiguous_gradients" },
        { KEY_ASYNC_TP_ALLREDUCE, r->async_tp_allreduce || sums_in_layers(r),
          " but in megatron-local's layers under tensor parallelism without "
          "sequence parallelism" },
        { KEY_SCATTER_GATHER,
          !r->scatter_gather
              || (run_sends_parts(r) && r->engine == ENGINE_MEGATRON),
          " but in Megatron's pipelines under tensor parallelism without "
          "sequence parallelism" },
        { KEY_RETURN_OUTPUTS, run_torch_pipelines(r),
          " but in torchtitan's pipelines" },
        { KEY_KEEP_REDUCE_SCATTER,
          run_torch_pipelines(r) && run_is_fsdp(r) && r->zero != 0,
          " but in torchtitan's pipelines that FSDP shards" },
        { KEY_OFFLOAD_RATIO, r->offload_optimizer != OFFLOAD_NONE,
          " without --offload-optimizer cpu" },
        { KEY_OP_FUSER,
          (r->op_fuser && spec->experts > 0) || !r->setup.v[KEY_OP_FUSER].n,
          " but in Megatron with Transformer Engine and grouped experts" },
        { KEY_FP8_ATTENTION,
          (r->fp8_attention && r->attention == ATTN_FLASH)
              || !r->setup.v[KEY_FP8_ATTENTION].n,
          " but in Megatron's layers with Transformer Engine, MXFP8 and one "
          "fused kernel on Blackwell" },
        { KEY_WGRAD_DEFERRAL_LIMIT, r->deferred_wgrads != 0,
          " without --defer-embedding-wgrad-compute" },
        { KEY_ATTENTION_KERNEL, r->attention == ATTN_FLASH,
          " but on attention 'flash'" },
        { KEY_ROPE_FUSION,
          (r->rope_fusion && spec->kv_rank > 0)
              || !r->setup.v[KEY_ROPE_FUSION].n,
          " but in Megatron's latent attention with Transformer Engine" },
        { KEY_PIN_MEMORY, run_offloads(r), " where nothing is offloaded" },
        { KEY_PIN_MEMORY,
          !run_checkpoints_in_cpu(r) || r->offload_optimizer != OFFLOAD_NONE
              || r->offload_params != OFFLOAD_NONE,
          " on checkpoints, which DeepSpeed copies to pageable memory" },
        { KEY_OPTIMIZER_BUFFERS, states, " without --offload-optimizer nvme" },
        { KEY_PARAM_BUFFERS, weights, " without --offload-params nvme" },
        { KEY_PARAM_BUFFER_SIZE, weights, " without --offload-params nvme" },
        { KEY_MAX_IN_CPU, weights, " without --offload-params nvme" },
        { KEY_PIPELINE_READ, states, " without --offload-optimizer nvme" },
        { KEY_PIPELINE_WRITE, states, " without --offload-optimizer nvme" },
        { KEY_NVME_BANDWIDTH,
          states || weights || r->offload_activations == OFFLOAD_NVME,
          " where nothing is on a disk" },
        { KEY_BF16_LAYERS_AT_START, r->prec.fp8, " without 8-bit products" },
        { KEY_BF16_LAYERS_AT_END, r->prec.fp8, " without 8-bit products" },
        { KEY_EMBEDDING_STATES, run_has_8bit_moments(r),
          " without an 8-bit optimizer" },
        { KEY_OPTIMIZER_RANK, run_projects(r), " without galore or apollo" },
        { KEY_OPTIMIZER_TARGETS, run_projects(r), " without galore or apollo" },
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (r->given[keys[i].key] && !keys[i].used)
            resolve_note(r, keys[i].key, "'%s' has no effect%s",
                         setup_field(keys[i].key)->key, keys[i].why);
}

/* Of optimizers that choose their moments' type themselves. */
static const char *own_moments(enum optimizer o)
{
    switch (o) {
    case OPT_PAGED_ADAMW: return ": bitsandbytes' moments are in fp32";
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_LION8BIT:
    case OPT_GALORE8BIT: return ": bitsandbytes' moments are in 8 bits";
    case OPT_ADAM4BIT: return ": torchao's moments are in 4 bits";
    case OPT_ADAFACTOR: return ": transformers' Adafactor keeps fp32";
    case OPT_SGD: return " on optimizer 'sgd', which has no moments";
    case OPT_ADAMW:
    case OPT_LAMB:
    case OPT_MOMENTUM:
    case OPT_LION:
    case OPT_ADAGRAD:
    case OPT_RMSPROP:
    case OPT_MUON:
    case OPT_GALORE:
    case OPT_APOLLO:
    case OPT_NONE:
    case OPTIMIZER_COUNT: break;
    }
    return NULL;
}

static void say_own_moments(struct run *r)
{
    const char *why = own_moments(r->optimizer);
    if (r->given[KEY_OPTIMIZER_DTYPE] && why != NULL)
        resolve_note(r, KEY_OPTIMIZER_DTYPE,
                     "'optimizer_dtype' has no effect%s", why);
}

/* Some layer hands the kernel a mask (lower/hf.c): others are causal, or see
 * all, without one. */
static bool has_sdpa_mask(const struct run *r, const struct spec *spec)
{
    const bool slides =
        spec->sliding_layers > 0 && spec->sliding_window <= r->seq_len;
    const bool own = spec->family == FAM_BAICHUAN ? spec->position == POS_ROPE
                                                  : spec->family == FAM_QWEN;
    return slides || own || spec->family == FAM_FALCON || spec->index_heads > 0
           || spec->joint == JOINT_GEMMA3 || r->mask == MASK_PADDING;
}

static void say_mask_per_head(struct run *r, const struct spec *spec)
{
    if (!r->mask_per_head)
        return;
    if (!run_is_hf(r) || r->attention != ATTN_SDPA)
        resolve_note(r, KEY_MASK_PER_HEAD,
                     "'mask_per_head' has no effect but with hf layers and "
                     "attention 'sdpa'");
    else if (!has_sdpa_mask(r, spec))
        resolve_note(r, KEY_MASK_PER_HEAD,
                     "'mask_per_head' has no effect: no layer here has a mask");
    else if (r->seq_len % MASK_ALIGN_BEFORE == 0 && !r->given[KEY_LENGTHS]
             && !r->given[KEY_LENGTH_MEAN])
        resolve_note(r, KEY_MASK_PER_HEAD,
                     "'mask_per_head' has no effect: rows of %" PRIu64
                     " tokens are aligned",
                     r->seq_len);
}

/* Valid, for a bucket holds one tensor at least; but below 1 KiB, which a
 * norm's weight of 512 numbers in 16 bits fills, all do, and 25 is what
 * PyTorch's bucket_cap_mb, which counts MiB, says by itself. */
enum { DDP_BUCKET_LIKELY = 1024 };

static void say_small_bucket(struct run *r)
{
    if (r->given[KEY_DDP_BUCKET] && r->ddp_bucket_bytes < DDP_BUCKET_LIKELY)
        resolve_note(r, KEY_DDP_BUCKET,
                     "ddp_bucket counts bytes: of %" PRIu64 " each gradient "
                     "is a bucket; PyTorch's bucket_cap_mb counts MiB "
                     "(--ddp-bucket %" PRIu64 "MiB)",
                     r->ddp_bucket_bytes, r->ddp_bucket_bytes);
}

static void say_moot_norm(struct run *r, const struct spec *spec)
{
    const bool own =
        run_is_hf(r) || r->impl == IMPL_TORCHTITAN || r->impl == IMPL_TORCHTUNE;
    if (!r->given[KEY_NORM_KERNEL])
        return;
    if (r->impl == IMPL_PAPER)
        resolve_note(r, KEY_NORM_KERNEL,
                     "'norm_kernel' has no effect: of a norm the paper counts "
                     "the input alone");
    else if (!own)
        resolve_note(r, KEY_NORM_KERNEL,
                     "'norm_kernel' has no effect: Megatron's norms are one "
                     "kernel");
    else if (spec->norm != NORM_RMS)
        resolve_note(r, KEY_NORM_KERNEL,
                     "'norm_kernel' has no effect: norms are not RMSNorm");
}

static void say_moot_mask(struct run *r, const struct spec *spec)
{
    say_mask_per_head(r, spec);
    resolve_say_padding(r, spec);
    if (r->mask != MASK_MODEL)
        return;
    if (!run_is_hf(r) || r->attention != ATTN_EAGER || !spec_masks_itself(spec))
        resolve_note(r, KEY_ATTENTION_MASK,
                     "'attention_mask' has no effect but in BERT and RoBERTa "
                     "with transformers' eager attention");
}

/* Classes that make their logits fp32 and back shifted them always; encoders'
 * labels are not shifted, and an encoder-decoder shifts its input. */
static void say_moot_shift(struct run *r, const struct spec *spec)
{
    if (!r->given[KEY_SHIFT_LOGITS] || !run_is_hf(r))
        return;
    if (r->fp32_logits)
        resolve_note(r, KEY_SHIFT_LOGITS,
                     "'shift_logits' has no effect beside fp32_logits, whose "
                     "versions shift logits");
    else if (r->shift_logits
             && (spec->bidirectional || spec->decoder_layers > 0))
        resolve_note(r, KEY_SHIFT_LOGITS,
                     "'shift_logits' has no effect: this model's labels are "
                     "not shifted");
}

void resolve_say_moot(struct run *r, const struct spec *spec)
{
    say_moot(r, spec);
    say_moot_parts(r, spec);
    say_own_moments(r);
    say_moot_mask(r, spec);
    say_moot_norm(r, spec);
    say_moot_shift(r, spec);
    say_small_bucket(r);
}
