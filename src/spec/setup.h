/*
 * What the user wants to run the model with. `struct setup` is the user's
 * keys, still apart from any model; setup_resolve() turns it into a `struct
 * run`: typed, defaulted, checked against the model and the GPU.
 * setup.def holds one row a key; every other list of keys is made from it.
 */
#ifndef MEMPLAN_SPEC_SETUP_H
#define MEMPLAN_SPEC_SETUP_H

#include "base/arena.h"
#include "base/diag.h"
#include "data/gpu.h"
#include "data/kernel.h"
#include "spec/spec.h"

/* ---- choices: enum and text from one list ---- */

#define FRAMEWORK_MAP(X)                                                       \
    X(FW_HF, "hf")                                                             \
    X(FW_DEEPSPEED, "deepspeed")                                               \
    X(FW_FSDP, "fsdp")                                                         \
    X(FW_TORCHTITAN, "torchtitan")                                             \
    X(FW_MEGATRON, "megatron")                                                 \
    X(FW_MEGATRON_DEEPSPEED, "megatron-deepspeed")                             \
    X(FW_TORCHTUNE, "torchtune")                                               \
    X(FW_NEMO, "nemo")

#define IMPLEMENTATION_MAP(X)                                                  \
    X(IMPL_HF, "hf")                                                           \
    X(IMPL_HF_LIGER, "hf-liger")                                               \
    X(IMPL_MEGATRON, "megatron")                                               \
    X(IMPL_MEGATRON_LOCAL, "megatron-local")                                   \
    X(IMPL_TORCHTITAN, "torchtitan")                                           \
    X(IMPL_TORCHTUNE, "torchtune")                                             \
    X(IMPL_LITGPT, "litgpt")                                                   \
    X(IMPL_PAPER, "paper")

#define ENGINE_MAP(X)                                                          \
    X(ENGINE_DDP, "ddp")                                                       \
    X(ENGINE_DEEPSPEED, "deepspeed")                                           \
    X(ENGINE_FSDP, "fsdp")                                                     \
    X(ENGINE_FSDP2, "fsdp2")                                                   \
    X(ENGINE_MEGATRON, "megatron")                                             \
    X(ENGINE_MEGATRON_FSDP, "megatron-fsdp")

#define SCHEDULE_MAP(X)                                                        \
    X(SCHED_1F1B, "1f1b")                                                      \
    X(SCHED_GPIPE, "gpipe")                                                    \
    X(SCHED_INTERLEAVED, "interleaved")                                        \
    X(SCHED_ZB_H1, "zb-h1")                                                    \
    X(SCHED_ZB_V, "zb-v")                                                      \
    X(SCHED_DUALPIPE, "dualpipe")                                              \
    X(SCHED_NAIVE, "naive")                                                    \
    X(SCHED_DUALPIPE_V, "dualpipe-v")                                          \
    X(SCHED_ZB_INTERLEAVED, "zb-interleaved")

#define PRECISION_MAP(X)                                                       \
    X(PREC_BF16_MIXED, "bf16-mixed")                                           \
    X(PREC_FP16_MIXED, "fp16-mixed")                                           \
    X(PREC_BF16_AMP, "bf16-amp")                                               \
    X(PREC_FP16_AMP, "fp16-amp")                                               \
    X(PREC_BF16, "bf16")                                                       \
    X(PREC_FP16, "fp16")                                                       \
    X(PREC_FP32, "fp32")                                                       \
    X(PREC_TF32, "tf32")                                                       \
    X(PREC_FP8_MIXED, "fp8-mixed")                                             \
    X(PREC_FP4_MIXED, "fp4-mixed")

#define FP8_RECIPE_MAP(X)                                                      \
    X(FP8_DELAYED, "delayed")                                                  \
    X(FP8_TENSORWISE, "tensorwise")                                            \
    X(FP8_BLOCKWISE, "blockwise")                                              \
    X(FP8_MXFP8, "mxfp8")                                                      \
    X(FP8_DEEPSEEK, "deepseek")                                                \
    X(FP8_ROWWISE, "rowwise")                                                  \
    X(FP8_ROWWISE_GW_HP, "rowwise_with_gw_hp")                                 \
    X(FP8_NVFP4, "nvfp4") /* of 4 bits: precision fp4-mixed */

/* DT_NONE as a choice means "no such copy" (master_dtype none). */
#define DTYPE_MAP(X)                                                           \
    X(DT_FP32, "fp32")                                                         \
    X(DT_BF16, "bf16")                                                         \
    X(DT_FP16, "fp16")                                                         \
    X(DT_FP8, "fp8")                                                           \
    X(DT_INT8, "int8")                                                         \
    X(DT_NONE, "none")                                                         \
    X(DT_NF4, "nf4")                                                           \
    X(DT_FP4, "fp4")                                                           \
    X(DT_INT4, "int4")                                                         \
    X(DT_E5M6, "e5m6")                                                         \
    X(DT_BOOL, "bool")                                                         \
    X(DT_INT32, "int32")                                                       \
    X(DT_INT64, "int64")

#define OPTIMIZER_MAP(X)                                                       \
    X(OPT_ADAMW, "adamw")                                                      \
    X(OPT_ADAM8BIT, "adam8bit")                                                \
    X(OPT_PAGED_ADAM8BIT, "paged-adam8bit")                                    \
    X(OPT_PAGED_ADAMW, "paged-adamw")                                          \
    X(OPT_SGD, "sgd")                                                          \
    X(OPT_MOMENTUM, "momentum")                                                \
    X(OPT_ADAFACTOR, "adafactor")                                              \
    X(OPT_LION, "lion")                                                        \
    X(OPT_LION8BIT, "lion8bit")                                                \
    X(OPT_ADAGRAD, "adagrad")                                                  \
    X(OPT_RMSPROP, "rmsprop")                                                  \
    X(OPT_MUON, "muon")                                                        \
    X(OPT_LAMB, "lamb")                                                        \
    X(OPT_ADAM4BIT, "adam4bit")                                                \
    X(OPT_GALORE, "galore")                                                    \
    X(OPT_GALORE8BIT, "galore8bit")                                            \
    X(OPT_APOLLO, "apollo")                                                    \
    X(OPT_NONE, "none")

#define EMBEDDING_STATES_MAP(X)                                                \
    X(EMBEDDING_STATES_8BIT, "8bit")                                           \
    X(EMBEDDING_STATES_FP32, "fp32")

#define OPTIMIZER_IMPL_MAP(X)                                                  \
    X(OPTIMPL_FOREACH, "foreach")                                              \
    X(OPTIMPL_FUSED, "fused")                                                  \
    X(OPTIMPL_LOOP, "loop")                                                    \
    X(OPTIMPL_FOREACH_2_0, "foreach-2.0")

#define ZERO_FLATTEN_MAP(X)                                                    \
    X(FLATTEN_GPU, "gpu")                                                      \
    X(FLATTEN_CPU, "cpu")

#define ZERO_BUCKET_MAP(X)                                                     \
    X(BUCKET_GRADIENT, "gradient")                                             \
    X(BUCKET_BACKWARD, "backward")

#define ZERO_OVERFLOW_MAP(X)                                                   \
    X(OVERFLOW_FREED, "freed")                                                 \
    X(OVERFLOW_KEPT, "kept")

#define ZERO_RANK_MAP(X)                                                       \
    X(ZERO_RANK_FULLEST, "fullest")                                            \
    X(ZERO_RANK_FIRST, "first")

#define GRAD_SYNC_MAP(X)                                                       \
    X(SYNC_EACH, "each")                                                       \
    X(SYNC_LAST, "last")

#define FSDP_UNITS_MAP(X)                                                      \
    X(FSDP_LAYERS, "layers")                                                   \
    X(FSDP_ENDS, "ends")                                                       \
    X(FSDP_EMBEDDING, "embedding")

#define TOO_LONG_MAP(X)                                                        \
    X(TOO_LONG_TRUNCATE, "truncate")                                           \
    X(TOO_LONG_DROP, "drop")

#define RECOMPUTE_MAP(X)                                                       \
    X(RECOMP_NONE, "none")                                                     \
    X(RECOMP_SELECTIVE, "selective")                                           \
    X(RECOMP_FULL, "full")                                                     \
    X(RECOMP_OPS, "ops")

/* A LIST of choices is a bit set: bit i for the i-th word. */
#define RECOMPUTE_MODULE_MAP(X)                                                \
    X(REMOD_CORE_ATTN, "core_attn")                                            \
    X(REMOD_LAYERNORM, "layernorm")                                            \
    X(REMOD_MLA_UP_PROJ, "mla_up_proj")                                        \
    X(REMOD_MLP, "mlp")                                                        \
    X(REMOD_MOE_ACT, "moe_act")                                                \
    X(REMOD_MOE, "moe")                                                        \
    X(REMOD_SHARED_EXPERTS, "shared_experts")

/* Megatron's --offload-modules, in the order of a layer (core/transformer/
 * transformer_config.py). */
#define OFFLOAD_MODULE_MAP(X)                                                  \
    X(OFFMOD_ATTN_NORM, "attn_norm")                                           \
    X(OFFMOD_QKV_LINEAR, "qkv_linear")                                         \
    X(OFFMOD_CORE_ATTN, "core_attn")                                           \
    X(OFFMOD_ATTN_PROJ, "attn_proj")                                           \
    X(OFFMOD_MLP_NORM, "mlp_norm")                                             \
    X(OFFMOD_EXPERT_FC1, "expert_fc1")                                         \
    X(OFFMOD_MOE_ACT, "moe_act")

/* Megatron's --cuda-graph-impl, and --cuda-graph-modules in the order of a layer
 * (core/transformer/enums.py, CudaGraphModule). */
#define CUDA_GRAPH_IMPL_MAP(X)                                                 \
    X(GRAPHS_OF_TE, "transformer_engine")                                      \
    X(GRAPHS_LOCAL, "local")                                                   \
    X(GRAPHS_FULL_ITERATION, "full_iteration")
#define CUDA_GRAPH_SCOPE_MAP(X)                                                \
    X(GRAPHED_ATTN, "attn")                                                    \
    X(GRAPHED_MLP, "mlp")                                                      \
    X(GRAPHED_MOE, "moe")                                                      \
    X(GRAPHED_MOE_ROUTER, "moe_router")                                        \
    X(GRAPHED_MOE_PREPROCESS, "moe_preprocess")                                \
    X(GRAPHED_MAMBA, "mamba")

/* What the memory-efficient kernel wants rows of a mask aligned to, and what
 * PyTorch 2.1 did (aten/src/ATen/native/transformers/attention.cpp,
 * preprocess_mask; pytorch#114173). */
enum { MASK_ALIGN = 8, MASK_ALIGN_BEFORE = 16 };

#define ATTENTION_MAP(X)                                                       \
    X(ATTN_FLASH, "flash")                                                     \
    X(ATTN_SDPA, "sdpa")                                                       \
    X(ATTN_EAGER, "eager")

#define ATTENTION_KERNEL_MAP(X)                                                \
    X(KERNEL_TRITON, "triton")                                                 \
    X(KERNEL_FLASH_1, "flash1")                                                \
    X(KERNEL_FLASH_2, "flash2")                                                \
    X(KERNEL_FLASH_3, "flash3")                                                \
    X(KERNEL_CUDNN, "cudnn")

#define LOSS_MAP(X)                                                            \
    X(LOSS_STANDARD, "standard")                                               \
    X(LOSS_FUSED, "fused")                                                     \
    X(LOSS_CHUNKED, "chunked")                                                 \
    X(LOSS_XENTROPY, "xentropy")

#define CE_FUSION_MAP(X)                                                       \
    X(CE_TE, "te")                                                             \
    X(CE_NATIVE, "native")

#define SSM_KERNEL_MAP(X)                                                      \
    X(SSM_KERNEL_FUSED, "fused")                                               \
    X(SSM_KERNEL_TORCH, "torch")

#define NORM_KERNEL_MAP(X)                                                     \
    X(NORM_EAGER, "eager")                                                     \
    X(NORM_FUSED, "fused")

#define CP_COMM_MAP(X)                                                         \
    X(CP_P2P, "p2p")                                                           \
    X(CP_A2A, "a2a")                                                           \
    X(CP_ALL_GATHER, "all_gather")

#define MOE_DISPATCHER_MAP(X)                                                  \
    X(DISPATCH_ALLTOALL, "alltoall")                                           \
    X(DISPATCH_ALLGATHER, "allgather")                                         \
    X(DISPATCH_FLEX, "flex")

#define MOE_FLEX_BACKEND_MAP(X)                                                \
    X(FLEX_DEEPEP, "deepep")                                                   \
    X(FLEX_HYBRIDEP, "hybridep")

#define MOE_ROUTER_DTYPE_MAP(X)                                                \
    X(ROUTER_DTYPE_NONE, "none")                                               \
    X(ROUTER_DTYPE_FP32, "fp32")

#define MOE_AUX_LOSS_MAP(X)                                                    \
    X(AUX_LOSS_NONE, "none")                                                   \
    X(AUX_LOSS_BATCH, "aux_loss")                                              \
    X(AUX_LOSS_SEQUENCE, "seq_aux_loss")                                       \
    X(AUX_LOSS_GLOBAL, "global_aux_loss")

#define LORA_TARGET_MAP(X)                                                     \
    X(LORA_Q, "q")                                                             \
    X(LORA_K, "k")                                                             \
    X(LORA_V, "v")                                                             \
    X(LORA_O, "o")                                                             \
    X(LORA_GATE, "gate")                                                       \
    X(LORA_UP, "up")                                                           \
    X(LORA_DOWN, "down")                                                       \
    X(LORA_IN_PROJ, "in_proj")                                                 \
    X(LORA_X_PROJ, "x_proj")                                                   \
    X(LORA_OUT_PROJ, "out_proj")                                               \
    X(LORA_Q_A, "q_a")                                                         \
    X(LORA_Q_B, "q_b")                                                         \
    X(LORA_KV_A, "kv_a")                                                       \
    X(LORA_KV_B, "kv_b")                                                       \
    X(LORA_IN_QKVZ, "in_proj_qkvz")                                            \
    X(LORA_IN_BA, "in_proj_ba")                                                \
    X(LORA_IN_QKV, "in_proj_qkv")                                              \
    X(LORA_IN_Z, "in_proj_z")                                                  \
    X(LORA_IN_B, "in_proj_b")                                                  \
    X(LORA_IN_A, "in_proj_a")                                                  \
    X(LORA_ALL_LINEAR, "all-linear")

/* The same bits, and the head beside them. */
#define OPTIMIZER_TARGET_MAP(X)                                                \
    LORA_TARGET_MAP(X)                                                         \
    X(OPTIMIZER_TARGET_HEAD, "head")

#define LORA_VARIANT_MAP(X)                                                    \
    X(LORA_VARIANT_LORA, "lora")                                               \
    X(LORA_VARIANT_RSLORA, "rslora")                                           \
    X(LORA_VARIANT_DORA, "dora")

/* What of AutoGPTQ makes 16 bits of a weight: several kernels of PyTorch's, one
 * of Triton's. */
#define GPTQ_KERNEL_MAP(X)                                                     \
    X(GPTQ_CUDA_OLD, "cuda_old")                                               \
    X(GPTQ_TRITON_V2, "triton_v2")

/* What k-bit training leaves in fp32 of what is not quantised. */
#define KBIT_CAST_MAP(X)                                                       \
    X(KBIT_CAST_NONE, "none")                                                  \
    X(KBIT_CAST_NORMS, "norms")                                                \
    X(KBIT_CAST_ALL, "all")

#define PEFT_TYPE_MAP(X)                                                       \
    X(PEFT_LORA, "lora")                                                       \
    X(PEFT_IA3, "ia3")                                                         \
    X(PEFT_PROMPT, "prompt-tuning")                                            \
    X(PEFT_P_TUNING, "p-tuning")                                               \
    X(PEFT_PREFIX, "prefix-tuning")

#define LORA_FULL_MAP(X)                                                       \
    X(LORA_FULL_EMBED, "embed")                                                \
    X(LORA_FULL_HEAD, "head")                                                  \
    X(LORA_FULL_NORM, "norm")                                                  \
    X(LORA_FULL_PROJECTOR, "projector")

#define FREEZE_MAP(X)                                                          \
    X(FREEZE_TEXT, "text")                                                     \
    X(FREEZE_VISION, "vision")                                                 \
    X(FREEZE_PROJECTOR, "projector")                                           \
    X(FREEZE_EMBED, "embed")                                                   \
    X(FREEZE_NORM, "norm")                                                     \
    X(FREEZE_HEAD, "head")

#define OFFLOAD_MAP(X)                                                         \
    X(OFFLOAD_NONE, "none")                                                    \
    X(OFFLOAD_CPU, "cpu")                                                      \
    X(OFFLOAD_NVME, "nvme")

#define ATTENTION_MASK_MAP(X)                                                  \
    X(MASK_NONE, "none")                                                       \
    X(MASK_DATALOADER, "dataloader")                                           \
    X(MASK_MODEL, "model")                                                     \
    X(MASK_PADDING, "padding")

#define ALLOCATOR_MAP(X)                                                       \
    X(ALLOC_DEFAULT, "default")                                                \
    X(ALLOC_EXPANDABLE, "expandable")

#define SCALING_LAW_MAP(X)                                                     \
    X(LAW_CHINCHILLA, "chinchilla") /* 20 tokens per parameter */              \
    X(LAW_HOFFMANN_1, "hoffmann-1")                                            \
    X(LAW_HOFFMANN_2, "hoffmann-2")                                            \
    X(LAW_HOFFMANN_3, "hoffmann-3")                                            \
    X(LAW_BESIROGLU, "besiroglu")                                              \
    X(LAW_KAPLAN, "kaplan")                                                    \
    X(LAW_MUENNIGHOFF, "muennighoff")

#define CHOICE_ENUM(id, text) id,
enum framework { FRAMEWORK_MAP(CHOICE_ENUM) FRAMEWORK_COUNT };
enum implementation { IMPLEMENTATION_MAP(CHOICE_ENUM) IMPLEMENTATION_COUNT };
enum engine { ENGINE_MAP(CHOICE_ENUM) ENGINE_COUNT };
enum schedule { SCHEDULE_MAP(CHOICE_ENUM) SCHEDULE_COUNT };
enum precision { PRECISION_MAP(CHOICE_ENUM) PRECISION_COUNT };
enum fp8_recipe { FP8_RECIPE_MAP(CHOICE_ENUM) FP8_RECIPE_COUNT };
enum dtype { DTYPE_MAP(CHOICE_ENUM) DTYPE_COUNT };
enum optimizer { OPTIMIZER_MAP(CHOICE_ENUM) OPTIMIZER_COUNT };
enum embedding_states {
    EMBEDDING_STATES_MAP(CHOICE_ENUM) EMBEDDING_STATES_COUNT
};
enum optimizer_impl { OPTIMIZER_IMPL_MAP(CHOICE_ENUM) OPTIMIZER_IMPL_COUNT };
enum zero_flatten { ZERO_FLATTEN_MAP(CHOICE_ENUM) ZERO_FLATTEN_COUNT };
enum zero_bucket { ZERO_BUCKET_MAP(CHOICE_ENUM) ZERO_BUCKET_COUNT };
enum zero_overflow { ZERO_OVERFLOW_MAP(CHOICE_ENUM) ZERO_OVERFLOW_COUNT };
enum zero_rank { ZERO_RANK_MAP(CHOICE_ENUM) ZERO_RANK_COUNT };
enum grad_sync { GRAD_SYNC_MAP(CHOICE_ENUM) GRAD_SYNC_COUNT };
enum fsdp_units { FSDP_UNITS_MAP(CHOICE_ENUM) FSDP_UNITS_COUNT };
enum too_long { TOO_LONG_MAP(CHOICE_ENUM) TOO_LONG_COUNT };
enum recompute { RECOMPUTE_MAP(CHOICE_ENUM) RECOMPUTE_COUNT };
enum recompute_module { RECOMPUTE_MODULE_MAP(CHOICE_ENUM) REMOD_COUNT };
enum offload_module { OFFLOAD_MODULE_MAP(CHOICE_ENUM) OFFMOD_COUNT };
enum cuda_graph_impl { CUDA_GRAPH_IMPL_MAP(CHOICE_ENUM) GRAPHS_COUNT };
enum cuda_graph_scope { CUDA_GRAPH_SCOPE_MAP(CHOICE_ENUM) GRAPHED_COUNT };
/* Of a run with CUDA graphs: as without them, before there are any; while they
 * are captured; once they run. */
enum graph_step { STEP_EAGER, STEP_CAPTURE, STEP_REPLAY, GRAPH_STEPS };
enum attention { ATTENTION_MAP(CHOICE_ENUM) ATTENTION_COUNT };
enum attention_kernel {
    ATTENTION_KERNEL_MAP(CHOICE_ENUM) ATTENTION_KERNEL_COUNT
};
enum loss { LOSS_MAP(CHOICE_ENUM) LOSS_COUNT };
enum ce_fusion { CE_FUSION_MAP(CHOICE_ENUM) CE_FUSION_COUNT };
enum ssm_kernel { SSM_KERNEL_MAP(CHOICE_ENUM) SSM_KERNEL_COUNT };
enum norm_kernel { NORM_KERNEL_MAP(CHOICE_ENUM) NORM_KERNEL_COUNT };
enum cp_comm { CP_COMM_MAP(CHOICE_ENUM) CP_COMM_COUNT };
enum moe_dispatcher { MOE_DISPATCHER_MAP(CHOICE_ENUM) MOE_DISPATCHER_COUNT };
enum moe_flex_backend {
    MOE_FLEX_BACKEND_MAP(CHOICE_ENUM) MOE_FLEX_BACKEND_COUNT
};
enum moe_aux_loss { MOE_AUX_LOSS_MAP(CHOICE_ENUM) MOE_AUX_LOSS_COUNT };
enum moe_router_dtype {
    MOE_ROUTER_DTYPE_MAP(CHOICE_ENUM) MOE_ROUTER_DTYPE_COUNT
};
enum lora_target { LORA_TARGET_MAP(CHOICE_ENUM) LORA_TARGET_COUNT };
enum { OPTIMIZER_TARGET_HEAD = LORA_TARGET_COUNT };
enum lora_variant { LORA_VARIANT_MAP(CHOICE_ENUM) LORA_VARIANT_COUNT };
enum gptq_kernel { GPTQ_KERNEL_MAP(CHOICE_ENUM) GPTQ_KERNEL_COUNT };
enum kbit_cast { KBIT_CAST_MAP(CHOICE_ENUM) KBIT_CAST_COUNT };
enum peft_type { PEFT_TYPE_MAP(CHOICE_ENUM) PEFT_TYPE_COUNT };
enum lora_full { LORA_FULL_MAP(CHOICE_ENUM) LORA_FULL_COUNT };
enum freeze { FREEZE_MAP(CHOICE_ENUM) FREEZE_COUNT };
enum offload { OFFLOAD_MAP(CHOICE_ENUM) OFFLOAD_COUNT };
enum attention_mask { ATTENTION_MASK_MAP(CHOICE_ENUM) ATTENTION_MASK_COUNT };
enum allocator_kind { ALLOCATOR_MAP(CHOICE_ENUM) ALLOCATOR_COUNT };
enum scaling_law { SCALING_LAW_MAP(CHOICE_ENUM) SCALING_LAW_COUNT };
#undef CHOICE_ENUM

/* ---- keys ---- */

enum setup_key {
#define KEY(id, key, type, choices, default_text, min, max, group, doc, ph)    \
    KEY_##id,
#include "spec/setup.def"
#undef KEY
    KEY_COUNT
};

union setup_value {
    uint64_t n; /* COUNT, BYTES; CHOICE: index, which is the enum's value
                    (of dtype keys: enum dtype); BOOL: 0, 1; LIST of choices:
                    bit set; NAME of a GPU: catalogue index */
    double x;   /* REAL */
};

enum { IMAGE_RANK = 3 };
enum { SETUP_LIST_MAX = 512 }; /* pipeline_layers: stages at most */
enum { SETUP_NOTES_MAX = 24, SETUP_NOTE_TEXT = 200 };
/* Room for a file's path, and for hosts of a line. */
enum { SETUP_PATH_TEXT = 1024, SETUP_HOSTS_TEXT = 4096 };
enum { SETUP_FILES_MAX = 4, SETUP_FILE_TEXT = 80 };
enum { LENGTHS_MAX = 64 };
enum { LAYER_WORDS = SETUP_LIST_MAX / 64 };

/* How fast a cluster is beside what its GPU's rows say, of a file that
 * `memplan calibrate` wrote. */
enum { CALIBRATION_NAME = 64, CALIBRATION_GPU = 32 };
struct calibration {
    size_t rows; /* that it was fitted to; 0: there is none */
    double scale[SPEED_SCALES];
    bool bound[SPEED_SCALES]; /* the fit stopped there */
    char gpu[CALIBRATION_GPU];
    char name[CALIBRATION_NAME]; /* of the file */
};

enum { GPU_PRICES_MAX = 64 }; /* at least the catalogue's rows */

/* What a launch file may say of its model, by Megatron's flags: id, flag. */
#define SHAPE_MAP(X)                                                           \
    X(SHAPE_LAYERS, "num_layers")                                              \
    X(SHAPE_HIDDEN, "hidden_size")                                             \
    X(SHAPE_HEADS, "num_attention_heads")                                      \
    X(SHAPE_KV_HEADS, "num_query_groups")                                      \
    X(SHAPE_HEAD_DIM, "kv_channels")                                           \
    X(SHAPE_FFN, "ffn_hidden_size")                                            \
    X(SHAPE_VOCAB, "vocab_size")                                               \
    X(SHAPE_EXPERTS, "num_experts")                                            \
    X(SHAPE_TOP_K, "moe_router_topk")                                          \
    X(SHAPE_EXPERT_FFN, "moe_ffn_hidden_size")                                 \
    X(SHAPE_SHARED_FFN, "moe_shared_expert_intermediate_size")                 \
    X(SHAPE_Q_RANK, "q_lora_rank")                                             \
    X(SHAPE_KV_RANK, "kv_lora_rank")                                           \
    X(SHAPE_GATED, "swiglu")                                                   \
    X(SHAPE_UNTIED, "untie_embeddings_and_output_weights")                     \
    X(SHAPE_NORM, "normalization")                                             \
    X(SHAPE_POSITION, "position_embedding_type")

enum shape_word {
#define SHAPE_ENUM(id, text) id,
    SHAPE_MAP(SHAPE_ENUM)
#undef SHAPE_ENUM
        SHAPE_COUNT
};
const char *shape_word_name(enum shape_word w);

struct setup {
    union setup_value v[KEY_COUNT];
    bool set[KEY_COUNT];
    bool automatic[KEY_COUNT]; /* "auto" of a file: the Trainer fills it in */
    uint16_t pipeline_layers[SETUP_LIST_MAX];
    size_t pipeline_count;
    uint16_t image[IMAGE_RANK]; /* channels, height, width */
    size_t notes;               /* of files that were read, */
    uint32_t notes_beyond;      /* and those without room */
    /* Of a launch file, where the rest of the sum is not in it: nodes whose
     * GPUs are all used, layers of a virtual stage; 0: not said. */
    uint32_t nodes, chunk_layers;
    uint32_t left_out; /* GPUs of that node which the line excludes */
    bool one_node;     /* one, for the line says nothing of nodes */
    bool peft_list;    /* PEFT's own choice of modules is meant */
    /* ... of the model that an adapter_config.json of prompts was made for; 0:
     * not said */
    uint64_t peft_layers, peft_heads, peft_width;
    uint32_t shape[SHAPE_COUNT]; /* and one; 0: not said */
    uint64_t wraps; /* classes of layers that FSDP's units are: wrap_name_bit */
    uint64_t peft_ranks, peft_alphas; /* names of its patterns, likewise */
    uint64_t peft_inputs;             /* ... and of feedforward_modules */
    uint64_t peft_names; /* its target_modules, by places of peft_module() */
    bool pending_keeps;  /* who names that file has the last word on batches */
    const char *pending_held; /* ... by this flag on who holds what (static) */
    bool fsdp_checkpoints;    /* Accelerate's file has FSDP recompute */
    bool megatron_script;     /* its defaults are meant, even or not */
    bool line_mixed;    /* `accelerate launch` has its own --mixed_precision */
    bool fill_pipeline; /* by default micro-batches are as many as it ever has
                           in flight */
    size_t files;
    uint32_t lengths[LENGTHS_MAX];
    size_t lengths_count;
    uint64_t layers[LAYER_WORDS];     /* layers_to_transform: bit set */
    uint32_t rank[LORA_TARGET_COUNT]; /* rank_pattern; 0: none of its own */
    struct calibration calibration;
    /* US dollars per GPU-hour of a price list, by the catalogue's order. */
    double listed_price[GPU_PRICES_MAX];
    bool listed[GPU_PRICES_MAX];
    /* From here on setup_take() copies no more than there is. */
    char note[SETUP_NOTES_MAX][SETUP_NOTE_TEXT]; /* [notes] */
    /* Who said a key: a launch file by its entry (static, "" for the file as a
     * whole), and which of the files; entry NULL: nobody, or the user. Means
     * nothing without files. */
    struct {
        const char *entry;
        uint8_t file;
        bool is_flag; /* "--entry", '-' for '_' */
    } said[KEY_COUNT];
    char file[SETUP_FILES_MAX][SETUP_FILE_TEXT]; /* [files] */
    /* What follows matters while files are read, and is not copied. */
    /* A hostfile that a line names, to be read after the other one, and what
     * the line takes of it. */
    struct setup_hosts {
        char file[SETUP_PATH_TEXT];
        char some[SETUP_HOSTS_TEXT]; /* "worker-0@worker-1:0,2": these, or */
        bool excludes;               /* ... all but these */
        uint32_t nodes, gpus;        /* the first ones; of each; 0: all */
        size_t note_first, note_end; /* said for want of it */
    } hosts;
    char pending[SETUP_PATH_TEXT]; /* a file that the one read goes on in */
    const char *pending_dialect;   /* static */
    /* What TrainingArguments say, which a DeepSpeed file has to agree with. */
    struct setup_trainer {
        char file[SETUP_FILE_TEXT]; /* "": none was read */
        const char *half;           /* "bf16", "fp16" (static), or NULL */
        bool bf16_said, fp16_said, clip_said;
        bool checkpoints;               /* gradient_checkpointing */
        double micro_batch, grad_accum; /* 0: not said */
        double max_grad_norm;
    } trainer;
};

/* What a run needs of a setup, into one that may be of another estimate. */
void setup_take(struct setup *to, const struct setup *from);

const memplan_field *setup_field(size_t key); /* NULL past the end */

/* KEY_COUNT when there is none of that name. */
enum setup_key setup_find_key(struct str key);

/* Parses and stores one value; reports E_UNKNOWN, E_ARG, E_RANGE with the
 * error's `key` filled in. A value that is refused leaves the key as it was.
 * Returns the status of this value, not d's. */
memplan_status setup_set(struct setup *s, struct str key, struct str value,
                         struct diag *d);

/* Reads a setup file: an object of keys. null unsets; "source", "notes" and
 * "x-..." are free. Reports every bad key and value with its place in `text`;
 * the good ones are stored. Returns d's status. */
struct json;
memplan_status setup_parse_prices(struct setup *s, const struct json *root,
                                  const char *text, size_t len, struct diag *d);
memplan_status setup_parse(struct setup *s, const struct json *root,
                           const char *text, size_t len, struct diag *d);

/* One value of a key from a file's tree, as setup_parse takes it; errors
 * get their place in `text`. */
struct setup_source {
    const char *text;
    size_t len;
    struct diag *d;
};
memplan_error *setup_set_json(struct setup *s, enum setup_key key,
                              const struct json *value,
                              struct setup_source from);

/* The same of a value made from what stands at `where`. Both return the error,
 * or NULL. */
memplan_error *setup_set_text(struct setup *s, enum setup_key key,
                              struct str value, const struct json *where,
                              struct setup_source from);

/* "ds.json: train_batch_size", of a key that a launch file said; NULL where
 * none did. */
enum { SETUP_SAID_TEXT = 160 };
const char *setup_said(const struct setup *s, enum setup_key key,
                       char buf[SETUP_SAID_TEXT]);

/* A scalar as the text has it; false when its kind cannot be of that type. */
bool setup_scalar_text(struct str *out, const struct json *value,
                       memplan_type type, const char *text, size_t len);

/* Adds an error about a key. */
COLD memplan_error *setup_error(struct diag *d, memplan_status status,
                                enum setup_key key, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

/* "q, v": words of a set of LORA_... */
enum { LORA_WORDS_MAX = 192 };
const char *lora_words(uint64_t set, char buf[LORA_WORDS_MAX]);

/* Trainer's names of optimizers that are not modelled, and what comes near.
 * [config_training_optim.c] */
bool optimizer_absent(struct str name, const char **why, const char **hint);

/* Word number `index` of a space separated list; empty past the end. */
struct str choice_word(const char *choices, size_t index);

/* The value as the user would write it: for JSON and messages; "" when it is
 * not set. Static text, or in buf. */
const char *setup_value_text(const struct setup *s, enum setup_key key,
                             char *buf, size_t size);

/* ---- the resolved run ---- */

struct precision_bytes {
    enum dtype param;   /* weights that the forward uses, as stored */
    enum dtype compute; /* activations of matrix products */
    enum dtype grad;    /* gradients as the engine keeps them */
    enum dtype reduce;  /* gradients on the wire */
    enum dtype master;  /* DT_NONE: no master copy */
    enum dtype optim;   /* optimizer moments */
    bool autocast;      /* fp32 weights, cast per use */
    bool fp8;           /* linears quantize their inputs */
};

enum { ASSUMPTION_MAX = 64, ASSUMPTION_TEXT = 200 };

/* What stands for '#' in an assumption's pattern. */
enum said_kind {
    SAID_NOTHING,
    SAID_TEXT,
    SAID_COUNT,
    SAID_CHOICE,
    SAID_QUANTITY, /* "135B" */
    SAID_CENTS,    /* "1.29" */
    SAID_SHARE,    /* "0.75" */
    SAID_SLOWEST   /* "4.8": how many % longer the slowest of n GPUs takes */
};
struct said_part {
    enum said_kind kind;
    enum setup_key key; /* SAID_CHOICE: `n` is a value of */
    union {
        const char *text; /* static */
        uint64_t n;
        double x; /* SAID_QUANTITY, SAID_SHARE */
    };
};

/* Most are never read: where there is a pattern, the text is made of it when one
 * is. */
struct assumption {
    enum setup_key key;       /* the key that sets it; KEY_COUNT for none */
    const char *pattern;      /* static; NULL: `text` is the text */
    struct said_part said[2]; /* in the order of the pattern's '#' */
    char text[ASSUMPTION_TEXT];
};

/* Its text: its own, or in buf. */
const char *assumption_text(const struct assumption *a,
                            char buf[ASSUMPTION_TEXT]);

/* How samples differ in length. */
struct spread {
    enum { LENGTHS_EQUAL, LENGTHS_GAMMA, LENGTHS_LISTED } kind;
    double mean, std; /* of a gamma distribution */
    uint64_t samples;
    enum too_long too_long;
};

/* Everything resolved. Degrees are >= 1. */
struct run {
    struct setup setup;    /* every key resolved: what JSON echoes */
    bool given[KEY_COUNT]; /* by the user */
    struct gpu gpu;        /* catalogue row, overrides applied */
    uint64_t capacity_bytes;
    double peak_flop_s; /* dense, of the compute precision */
    double peak_scale;  /* of any precision's peak: what is given over what
                           the catalogue has */
    double scale[SPEED_SCALES]; /* of a calibration; 1 without */
    double link_scale;          /* the same of the link inside a node */

    enum framework framework;
    enum implementation impl;
    enum engine engine;
    uint64_t zero;
    uint64_t gpus, gpus_per_node, dp, tp, pp, vpp, cp, ep, etp;
    uint64_t microbatch_group; /* 0: as many as run_round() has by itself */
    uint64_t shard; /* ranks over which dense states are sharded; 1 none */
    uint64_t expert_shard; /* the same for expert parameters */
    bool sequence_parallel;
    enum schedule schedule;
    uint16_t stage_layers[SETUP_LIST_MAX]; /* per stage, pp of them */
    uint64_t micro_batch, grad_accum, global_batch, seq_len;
    uint64_t decoder_seq_len; /* 0: one stack */
    uint64_t images;          /* in a sequence, of a model of two parts */
    struct spread lengths;    /* of samples */

    enum precision precision;
    struct precision_bytes prec;
    enum fp8_recipe fp8_recipe;     /* when prec.fp8 */
    bool fp8_params;                /* weights are stored so */
    bool fp8_attention;             /* cuDNN's kernel in MXFP8 */
    bool act_fp8;                   /* SwiGLU keeps its input so */
    uint64_t bf16_first, bf16_last; /* layers without such products */
    bool tp_comm_overlap;           /* Transformer Engine's user buffers */
    bool async_tp;                  /* PyTorch's symmetric memory */
    enum optimizer optimizer;
    enum optimizer_impl optimizer_impl;
    enum embedding_states embedding_states;
    uint64_t optimizer_rank, optimizer_targets; /* of projections */
    bool optimizer_in_backward;
    bool clip_grad;    /* by the global norm */
    bool zeroes_grads; /* in place: not zero_grad_set_to_none */
    enum fsdp_units fsdp_units;
    enum grad_sync grad_sync; /* FSDP: micro-batches that reduce gradients */
    bool reshard; /* FSDP cuts weights after forward, to gather them again */
    bool use_orig_params; /* FSDP 1: the optimizer has views of flat ones */
    enum zero_flatten zero_flatten;   /* gpu: where there is room */
    enum zero_bucket zero_bucket;     /* what makes the reduce bucket */
    enum zero_overflow zero_overflow; /* of a first overflow's gradients */
    enum zero_rank zero_rank;         /* whose partition of gradients */
    enum offload offload_activations;
    uint64_t away_layers; /* Transformer Engine: the first so many have theirs
                             on the CPU */
    uint64_t offload_modules; /* bit set: theirs are */
    uint64_t offload_min_elems;
    enum recompute recompute;
    uint64_t recompute_modules; /* bit set */
    bool compile;
    uint64_t recompute_layers;      /* per stage; all layers when not given */
    uint64_t recompute_granularity; /* layers per checkpoint */
    uint64_t recompute_every; /* of so many layers of a stage the last one */
    bool recompute_reentrant; /* its frame holds the result made again */
    bool distributes_saved;   /* of a checkpoint a tp rank keeps its part */
    bool recompute_in_unit;   /* FSDP 1, reentrant: not around its units */
    enum attention attention;
    enum attention_kernel attention_kernel; /* of flash: how fast it is */
    enum loss loss;
    bool return_outputs; /* schedule.step() hands out the last stage's logits */
    bool keep_reduce_scatter; /* a pipeline's last one's input, to the next */
    bool keep_outputs;  /* by the training loop, until it has the next ones */
    bool fp32_logits;   /* what the model hands out */
    bool shift_logits;  /* a copy, for the loss; else labels */
    bool means_litgpt;  /* who asked for its loss alone */
    bool mask_per_head; /* sdpa: of masks whose rows are not aligned */
    double hidden_dropout, embed_dropout, attention_dropout, head_dropout;
    double act_dropout;
    uint64_t vocab; /* padded */
    uint64_t lora_rank, lora_targets, lora_full;
    bool targets_apart; /* by names that each end one module alone */
    bool ties_full; /* of the words' table and a tied head one trained copy */
    enum lora_variant lora_variant;
    enum peft_type peft;  /* what lies over frozen weights, if anything does */
    bool some_layers;     /* adapters in layers of setup.layers alone */
    bool stops;           /* backward may end above the first layer */
    uint64_t feedforward; /* ia3: LORA_...: scaled before the product */
    uint64_t virtual_tokens; /* trained ones before the words; 0 none */
    uint64_t encoder_hidden; /* of what makes them */
    bool prefix_projection;
    uint64_t freeze;        /* parts that are not trained: bit set */
    uint64_t frozen_layers; /* of the first: not trained */
    enum dtype lora_dtype, base_dtype;
    double lora_dropout; /* before the adapters' first matrix */
    bool double_quant;
    bool linear_experts;          /* each one's matrices are, and are packed */
    enum gptq_kernel gptq_kernel; /* of base_dtype int4 */
    enum kbit_cast kbit_cast;     /* none where nothing is quantised */
    enum offload offload_optimizer, offload_params;
    double offload_ratio; /* of the optimizer, the share that moves */
    bool pin_memory;
    uint64_t optimizer_buffers, param_buffers; /* swap buffers */
    uint64_t param_buffer_elems, max_in_cpu;
    double nvme_bytes_s; /* that a node reads */
    bool pipeline_read, pipeline_write;
    enum attention_mask mask;
    enum ssm_kernel ssm_kernel;
    enum norm_kernel norm_kernel; /* of RMSNorm */

    uint64_t reduce_bucket, allgather_bucket, prefetch_bucket, max_live_params;
    uint64_t sub_group_size, persistence_threshold; /* elements, ZeRO-3 */
    uint64_t hpz_partition_size; /* ranks of ZeRO++'s second shards; 1: none */
    bool zero3_lists;            /* as DeepSpeed before 0.6 has ZeRO-3 */
    bool mics; /* ZeRO-3 in groups of `shard` ranks, with buffers of its own */
    bool quantized_weights;   /* ZeRO++: gathered in 8 bits */
    bool quantized_gradients; /* ... and reduced in 4, between nodes too */
    bool mics_hierarchical;   /* gathers between nodes first */
    uint64_t ddp_bucket_bytes;
    uint64_t cuda_context_bytes;
    bool overlap_comm;
    bool contiguous_gradients;  /* as told; see run_is_loose() */
    bool round_robin_gradients; /* as told; see run_deals_tensors() */
    bool multi_rank_sums;       /* as told; see run_sums_whole() */
    bool async_tp_allreduce;    /* as told; see run_sums_beside() */
    bool scatter_gather;        /* as told; see run_sends_parts() */
    bool deterministic;         /* kernels that repeat exactly */
    bool wgrad_fusion;          /* products add into the main gradients */
    uint64_t deferred_wgrads;   /* Megatron: micro-batches whose head's weight
                                   gradient waits for the step's end */
    bool plain_softmax;         /* PyTorch's where Megatron has a kernel */
    bool softmax_fp32;          /* ... of scores in 32 bits */
    bool softmax_input;         /* kept beside the result */
    bool dropout_mask;          /* kept of a fused dropout of 0 as well */
    bool drop_outputs;          /* kept outputs, when the step is done */
    bool grouped_gemm;          /* experts of a rank in one product */
    bool cuda_graph;
    enum cuda_graph_impl cuda_graph_impl;
    uint64_t cuda_graph_scope; /* bit set: what of layers is in graphs */
    uint64_t cuda_graph_warmup_steps;
    enum graph_step graph_step; /* that is looked at */
    bool ep_overlap;            /* a forward beside another's backward */
    bool ep_overlap_early;      /* ... attention's backward first of the two */
    bool delay_wgrad;           /* ... weights' gradients after their part's */
    bool replay_batches;        /* a step's batches stay on the GPU */
    enum ce_fusion ce_fusion;
    enum cp_comm cp_comm;
    enum moe_dispatcher moe_dispatcher;
    enum moe_flex_backend moe_flex_backend; /* of DISPATCH_FLEX */
    double moe_imbalance; /* of the fullest expert-parallel rank */
    double moe_capacity;  /* 0: dropless */
    bool moe_padded;      /* to the capacity */
    bool rope_fusion;     /* of Megatron's latent attention */
    bool
        moe_permute_fusion; /* rows of experts by Transformer Engine's kernels */
    bool op_fuser; /* experts are Transformer Engine's operations, fused where
                      its kernels are */
    bool moe_router_fp32; /* its logits and probabilities */
    enum moe_aux_loss moe_aux_loss;
    enum allocator_kind allocator;
    bool fast; /* without simulating it */

    double params; /* of the model; 0 unknown */
    double tokens; /* to train on; 0 unknown */
    double mfu;    /* assumed or given */
    double availability;
    double price_usd_h;       /* NAN unknown */
    double days, budget_flop; /* deadline, budget; 0 none */
    double tokens_per_param;
    double unique_tokens;    /* of the data, seen again and again; 0: enough */
    double inference_tokens; /* to be served over the model's life */
    double target_loss;      /* 0: none */
    enum scaling_law law;

    /* The last one is of how many there is no room for, where there are such. */
    struct assumption assumption[ASSUMPTION_MAX + 1];
    size_t n_assumptions, assumptions_beyond;
};

/* Fills `run` from the user's setup, the model and the GPU. Each impossible
 * thing is reported (E_CONFLICT, E_UNSUPPORTED, E_RANGE) with key and hint.
 * `params` is the model's parameter count, of experts the active ones (for
 * default tokens). spec may be NULL for `compute` without a model: then only
 * what concerns GPU, tokens and laws is resolved, and any other key that was
 * given is E_CONFLICT. Returns d's status. No allocation. */
memplan_status setup_resolve(struct run *run, const struct setup *setup,
                             const struct spec *spec, uint64_t params,
                             struct diag *d);

/* Adds an assumption that shows only once the run is evaluated. */
void run_assume(struct run *run, enum setup_key key, const char *text);
/* The same of a static pattern, with a count for its '#'. */
void run_say(struct run *run, enum setup_key key, const char *pattern,
             uint64_t n);

/* Of what lies under adapters, what is not quantised. */
enum dtype run_unquantised_dtype(const struct run *run);
/* Whether frozen experts are not in base_dtype: one parameter for all of a layer,
 * as transformers 5 has them, which bitsandbytes does not pack. */
bool run_keeps_experts(const struct run *run);

/* CUDA context and kernels where no key says how large they are: of the GPU's
 * architecture, and of when kernels were loaded. */
struct cuda_context {
    uint64_t bytes;
    const char *source;
    bool unverified; /* of another architecture */
};
struct cuda_context run_cuda_context(const struct run *run);

/* The kernel that Hugging Face's class of the family has: the one asked for, or
 * what comes next. */
enum attention spec_hf_attention(const struct spec *m, enum attention asked);

/* A run that only serves to look at a model: one GPU, one token, bf16. */
void run_bare(struct run *run, const struct spec *spec);

/* Megatron-DeepSpeed, up to ZeRO-1: DeepSpeed's pipeline engine trains, with
 * one stage too. */
bool run_pipelines(const struct run *run);

/* torch.distributed.pipelining moves micro-batches from stage to stage. */
bool run_torch_pipelines(const struct run *run);

/* Either version. */
static inline bool run_is_fsdp(const struct run *run)
{
    return run->engine == ENGINE_FSDP || run->engine == ENGINE_FSDP2;
}
/* Megatron's optimizer, with its buffers or with Megatron-FSDP. */
static inline bool run_engine_is_megatron(const struct run *run)
{
    return run->engine == ENGINE_MEGATRON
           || run->engine == ENGINE_MEGATRON_FSDP;
}
/* DeepSpeed at this stage; 1 and 2 are one optimizer (stage_1_and_2.py). */
static inline bool run_zero_is(const struct run *run, uint64_t stage)
{
    return run->engine == ENGINE_DEEPSPEED && run->zero == stage;
}
static inline bool run_is_zero_1_or_2(const struct run *run)
{
    return run_zero_is(run, 1) || run_zero_is(run, 2);
}
/* FSDP reduces gradients of a step's last micro-batch alone. */
bool run_reduces_last(const struct run *run);
/* Pipeline ranks that hold each stage: DualPipe's two directions. */
static inline uint64_t run_copies(const struct run *run)
{
    return run->schedule == SCHED_DUALPIPE && run->pp > 1 ? 2 : 1;
}
/* One process that spreads the layers of Hugging Face's model over its GPUs
 * (device_map). */
bool run_spreads(const struct run *run);
/* GPUs that work at one time, and wait for each other. */
static inline uint64_t run_at_once(const struct run *run)
{
    return run_spreads(run) ? 1 : run->gpus;
}
/* Whether stages go down the ranks and up again, two on each. */
static inline bool run_folds(const struct run *run)
{
    return run->pp > 1
           && (run->schedule == SCHED_ZB_V
               || run->schedule == SCHED_DUALPIPE_V);
}
/* Whether the schedule runs backwards in two halves: the inputs' gradients, and
 * later the weights'. */
bool run_splits_backward(const struct run *run);
/* Chunks of a rank that one micro-batch goes through. */
static inline uint64_t run_chunks(const struct run *run)
{
    return run_folds(run) ? 2 : run->vpp;
}
/* Of so many layers of a rank those before one of its chunks, of which the first
 * ones are longer where they are not equal; and in which chunk a layer is. */
static inline uint64_t run_chunk_before(uint64_t layers, uint64_t chunks,
                                        uint64_t chunk)
{
    const uint64_t more = layers % chunks;
    return chunk * (layers / chunks) + (chunk < more ? chunk : more);
}
static inline uint64_t run_chunk_with(uint64_t layers, uint64_t chunks,
                                      uint64_t layer)
{
    const uint64_t each = layers / chunks, more = layers % chunks;
    return layer < more * (each + 1)
               ? layer / (each + 1)
               : more + (layer - more * (each + 1)) / each;
}
/* Layers of a rank's lower half, where stages go down the ranks and up again. */
static inline uint64_t run_fold_low(const struct run *run, uint64_t rank)
{
    return run_chunk_before(run->stage_layers[rank], 2, 1);
}
/* Whether chunks go down the ranks again and again: chunk c of all ranks comes
 * before chunk c + 1 of any (interleaved 1F1B, and with split backwards). */
static inline bool schedule_loops(enum schedule schedule)
{
    return schedule == SCHED_INTERLEAVED || schedule == SCHED_ZB_INTERLEAVED;
}
static inline bool run_loops(const struct run *run)
{
    return schedule_loops(run->schedule) && run->vpp > 1;
}
/* ... of split backwards: a bit for each. */
enum { SPLIT_CHUNKS_MAX = 64 };
/* Of such the micro-batches that go through a chunk before any goes through the
 * next one. Megatron's are as many as stages, or as it is told, the last ones
 * fewer; PyTorch takes as many as make equal rounds (schedules.py,
 * microbatches_per_round). */
static inline uint64_t run_round(const struct run *run)
{
    if (run->microbatch_group > 0)
        return run->microbatch_group;
    const uint64_t rounds = run->grad_accum / run->pp;
    return rounds == 0 ? run->grad_accum : run->grad_accum / rounds;
}
/* Layers of a rank before one of its chunks, and the chunk that one of them is
 * in. PyTorch's stages count embedding and head as a layer each, of the first
 * chunk and of the last (torchtitan's generate_llm_fqn_per_model_part). */
uint64_t run_layers_before(const struct run *run, uint64_t rank,
                           uint64_t chunk);
uint64_t run_layer_chunk(const struct run *run, uint64_t rank, uint64_t layer);
/* The first layer of such a chunk, of the whole model. */
uint64_t run_chunk_first(const struct run *run, uint64_t rank, uint64_t chunk);
/* Megatron's layers, whoever counts them. */
static inline bool run_is_megatron(const struct run *run)
{
    return run->impl == IMPL_MEGATRON || run->impl == IMPL_MEGATRON_LOCAL
           || run->impl == IMPL_PAPER;
}
/* The first stage's words and the last one's head, where they are one tensor, are
 * on two ranks, which add up its gradients: Megatron's embedding group, DeepSpeed's
 * TiedLayerSpec. PyTorch's pipelines share none. */
static inline bool run_parts_words(const struct run *run)
{
    return run->pp > 1 && run_is_megatron(run) && !run_folds(run)
           && run->schedule != SCHED_NAIVE && run->schedule != SCHED_DUALPIPE;
}
/* Hugging Face's layers. */
static inline bool run_is_hf(const struct run *run)
{
    return run->impl == IMPL_HF || run->impl == IMPL_HF_LIGER
           || run->impl == IMPL_LITGPT;
}
/* LitGPT's one class for the models of that name, around which its scripts
 * have a loop of their own. */
static inline bool run_is_litgpt(const struct run *run)
{
    return run->impl == IMPL_LITGPT;
}
/* A sequence of theirs is cut over ranks, of which each has its own positions
 * and labels. */
static inline bool run_cuts_sequences(const struct run *run)
{
    return run->cp > 1 && run_is_hf(run);
}
/* torch's context_parallel in them: keys and values come from all ranks. */
static inline bool run_rings(const struct run *run)
{
    return run_cuts_sequences(run) && run->cp_comm != CP_A2A;
}
/* ... and around torchtitan's and torchtune's, which have nothing else. */
static inline bool run_has_torch_rings(const struct run *run)
{
    return run->impl == IMPL_TORCHTITAN || run->impl == IMPL_TORCHTUNE;
}
/* Ulysses around them: attention exchanges heads for tokens. */
static inline bool run_exchanges_heads(const struct run *run)
{
    return run->cp > 1 && run->cp_comm == CP_A2A && run_is_hf(run);
}
/* ... and in bf16 its BF16_Optimizer shards states at stage 0, over a whole
 * fp32 gradient buffer. */
bool run_is_bf16_pipeline(const struct run *run);
/* DeepSpeed's contiguous_gradients, off: gradients wait where they were made. */
bool run_is_loose(const struct run *run);
/* DeepSpeed's round_robin_gradients: tensors are dealt to partitions in turn. */
bool run_deals_tensors(const struct run *run);
/* DeepSpeed's BF16_Optimizer: a whole fp32 gradient buffer on every rank, sharded
 * states, when stage 1 is told to accumulate in fp32, and under a pipeline in bf16
 * at stage 0 too. */
bool run_is_bf16_optimizer(const struct run *run);
/* DeepSpeed's ZeRO-1 and -2 without contiguous_gradients put whole tensors
 * together, all-reduce them and take them apart (stage_1_and_2.py,
 * buffered_reduce_fallback), as stage 1 did from 0.4.4 to 0.12.6 whatever it was
 * told (engine.py, _configure_zero_optimizer). */
bool run_sums_tensors(const struct run *run);
/* Gradients are all-reduced although each rank updates a shard: so, by DeepSpeed's
 * ZeRO-1 and -2 with use_multi_rank_bucket_allreduce, as they are unless told
 * otherwise since 0.12.4 (stage_1_and_2.py, allreduce_and_scatter), which is after
 * Megatron-DeepSpeed's years, and by
 * BF16_Optimizer (pipe/engine.py, _bf16_reduce_grads; engine.py,
 * buffered_allreduce_fallback). */
bool run_sums_whole(const struct run *run);
/* Gradients are reduced while backward computes: as told, but by DeepSpeed not of
 * pipelines, by BF16_Optimizer, without ZeRO, or by that stage 1. */
bool run_reduces_beside(const struct run *run);
/* Tensor-parallel ranks that have the same hidden states send a part each to the
 * next stage, where they are gathered: DeepSpeed's (runtime/pipe/engine.py,
 * is_pipe_partitioned), and Megatron's of February 2021 to January 2023
 * (p2p_communication.py, scatter_gather_tensors_in_pipeline), which
 * Megatron-DeepSpeed has without --deepspeed until July 2023. */
bool run_sends_parts(const struct run *run);
/* Tokens go once to each rank that has experts of theirs, by a kernel of DeepEP's
 * or HybridEP's; where tensor parallelism cuts experts that is not modelled. */
bool run_sends_tokens_once(const struct run *run);
/* DeepSpeed as it was in the years of Megatron-DeepSpeed, 0.6.5 to 0.9. */
static inline bool run_is_old_deepspeed(const struct run *run)
{
    return run->framework == FW_MEGATRON_DEEPSPEED;
}
/* In Transformer Engine's layers, which take no notice of what follows. */
static inline bool run_sums_as_te(const struct run *run)
{
    return run->impl == IMPL_MEGATRON
           && run->framework != FW_MEGATRON_DEEPSPEED;
}
/* Megatron's engine without a buffer of gradients: its fork had one for sums in
 * fp32 alone, or where told to; else its all-reduce names what autograd made
 * main_grad, which zero_grad leaves, so that it stays beside the next step's
 * (megatron/model/distributed.py, allreduce_gradients; until July 2023). */
static inline bool run_has_loose_grads(const struct run *run)
{
    return run->engine == ENGINE_MEGATRON
           && run->framework == FW_MEGATRON_DEEPSPEED
           && run->prec.grad != DT_FP32;
}
/* Sums of gradients under tensor parallelism are started beside the weights'
 * products: in Transformer Engine's layers always (pytorch/module/linear.py), in
 * Megatron's own from September 2021 (core/tensor_parallel/layers.py), unless told
 * otherwise before core 0.7. Megatron-DeepSpeed has them bare: its Megatron was
 * older until July 2023, and switches it off since (arguments.py, validate_args). */
static inline bool run_sums_beside(const struct run *run)
{
    return run->async_tp_allreduce || run_sums_as_te(run);
}

/* Something of PEFT's lies over frozen weights. */
static inline bool run_adapts(const struct run *run)
{
    return run->lora_rank > 0 || run->peft != PEFT_LORA;
}
/* ... and it is Megatron-Bridge's, beside Megatron's linears, not PEFT's. */
static inline bool run_has_bridge_adapters(const struct run *run)
{
    return run_adapts(run)
           && (run->impl == IMPL_MEGATRON || run->impl == IMPL_MEGATRON_LOCAL);
}
/* Stage 2 keeps an even, flat partition of gradients in fp32, to which those of
 * 16 bits are added (data_types.grad_accum_dtype; DeepSpeed 0.19.8,
 * stage_1_and_2.py, _use_compact_grad_partition_buffer). What
 * Megatron-DeepSpeed ran with added in 16 bits. */
static inline bool run_sums_in_fp32(const struct run *run)
{
    return run_zero_is(run, 2) && run->prec.grad == DT_FP32
           && run->prec.param != DT_FP32
           && run->offload_optimizer == OFFLOAD_NONE && !run_adapts(run)
           && !run_is_old_deepspeed(run);
}
/* Tokens before the words, which go through all layers as these do. */
static inline bool run_prompts(const struct run *run)
{
    return run->peft == PEFT_PROMPT || run->peft == PEFT_P_TUNING;
}
/* Tokens before the words of which only keys and values are there, in each
 * layer. */
static inline bool run_prefixes(const struct run *run)
{
    return run->peft == PEFT_PREFIX;
}
/* Adapters in a layer: all, or those of layers_to_transform. */
static inline bool run_adapts_layer(const struct run *run, uint64_t layer)
{
    return !run->some_layers
           || (layer < SETUP_LIST_MAX
               && (run->setup.layers[layer / 64] >> layer % 64 & 1) != 0);
}

/* One scale a tensor: its 8-bit copy is the same whichever way it is read. */
static inline bool run_fp8_is_whole(const struct run *run)
{
    return run->fp8_recipe == FP8_DELAYED || run->fp8_recipe == FP8_TENSORWISE;
}

/* torchao's: a scale a row of one operand and a column of the other. */
static inline bool run_fp8_is_rowwise(const struct run *run)
{
    return run->fp8_recipe == FP8_ROWWISE
           || run->fp8_recipe == FP8_ROWWISE_GW_HP;
}

/* DeepSpeedZeroOptimizer, stages 1 and 2: flattens weights and clones a
 * partition. */
bool run_flattens(const struct run *run);

/* ... whose fp16 gradients overflow at the start, as its scale of the loss
 * begins too high. */
bool run_overflows(const struct run *run);
/* An optimizer of bitsandbytes, whose moments have 8 bits. */
bool run_has_8bit_moments(const struct run *run);
/* Megatron-DeepSpeed's --checkpoint-in-cpu: copies that forward waits for, in
 * memory that is not pinned (DeepSpeed activation_checkpointing/
 * checkpointing.py, partition_activations, copy_to_device). */
bool run_checkpoints_in_cpu(const struct run *run);
/* Moments in unified memory, which the driver moves: of tensors on the CPU none
 * are. */
bool run_pages(const struct run *run);
/* Moments of matrices in a projection of low rank (GaLore, APOLLO). */
bool run_projects(const struct run *run);

/* Anything has its place beside the GPU. */
bool run_offloads(const struct run *run);
/* Whose tensors leave the GPU between forward and backward: nobody's, but
 * checkpoints perhaps; the first layers', layer by layer (Transformer Engine);
 * those of all layers, one by one (OffloadActivations without checkpoints); those
 * of modules of each layer (Megatron's fine-grained offloading). */
enum away_how { AWAY_NOTHING, AWAY_LAYERS, AWAY_TENSORS, AWAY_MODULES };
enum away_how run_away(const struct run *run);
/* With checkpoints or without, OffloadActivations has the head's norm's too. */
bool run_unloads_head(const struct run *run);
/* ZeRO++'s, where they do something: between ranks, and between nodes. */
bool run_gathers_in_8_bits(const struct run *run);
bool run_reduces_in_4_bits(const struct run *run);

/* Gradients that autograd made stay between steps, on the GPU. */
bool run_keeps_grads(const struct run *run);
/* FSDP 1's flat ones, from backward past zero_grad to the next forward. */
bool run_keeps_flat_grads(const struct run *run);

/* Bytes of n elements: 4-bit types round up. */
uint64_t dtype_bytes_of(enum dtype t, uint64_t elems);
/* int8 and the 4-bit formats: dequantised before a product. */
bool dtype_is_quantised(enum dtype t);

/* Bytes of one element; 0 for DT_NONE and 4-bit types. */
static inline uint64_t dtype_size(enum dtype t)
{
    switch (t) {
    case DT_FP32:
    case DT_INT32: return 4;
    case DT_BF16:
    case DT_FP16: return 2;
    case DT_FP8:
    case DT_INT8:
    case DT_BOOL: return 1;
    case DT_INT64: return 8;
    case DT_NONE:
    case DT_NF4:
    case DT_FP4:
    case DT_INT4:
    case DT_E5M6:
    case DTYPE_COUNT: return 0;
    }
    return 0;
}
const char *dtype_name(enum dtype t);
bool setup_is_dtype(enum setup_key key); /* its choices are those names */

#endif
