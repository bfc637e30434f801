/* What Hugging Face's TrainingArguments and Accelerate share. */
#ifndef MEMPLAN_SPEC_CONFIG_HF_H
#define MEMPLAN_SPEC_CONFIG_HF_H

#include "spec/config.h"

/* Who holds weights, gradients and states. */
enum config_holder {
    HOLD_DDP,
    HOLD_FSDP, /* of either version */
    HOLD_DEEPSPEED,
    HOLD_MEGATRON
};

/* Sets what `mixed` ("bf16", "fp16", "fp32", "tf32") means: autocast over fp32
 * weights under DDP, weights cast by the others; Accelerate's FSDP reduces in
 * the format that it computes in (accelerate/utils/dataclasses.py,
 * set_mixed_precision). */
void config_hf_precision(struct config *c, enum config_holder holder,
                         const char *mixed);

void config_training_args_together(struct config *c);

/* --optim, its arguments and its modules; and back: nothing where there is no
 * word. */
void config_hf_optimizer(struct config *c);
/* The classes that FSDP makes units of, which the model may not have. */
/* The Trainer refuses both its own and FSDP's checkpoints. */
void config_both_recompute(struct config *c, const struct json *at);
void config_hf_wraps(struct config *c);
void config_hf_put_optim(struct emit *e, const struct run *r);

/* DeepSpeed's configuration, or its file, by the Trainer's flag or the
 * launcher's; NULL where neither names one. */
const struct json *config_deepspeed_file(const struct config *c);

/* The rank of adapters: 0 is reported, not taken for none. */
void config_lora_rank(struct config *c, const struct json *rank);

/* Whether that is an end of a model, to which PEFT puts adapters as well;
 * reported, at `at`. [config_peft.c] */
bool config_is_end(struct config *c, const struct json *at, struct str name);

/* PEFT's modules_to_save, whatever the file calls it: a list, or names with
 * commas or spaces between; and ensure_weight_tying beside it. */
void config_full_modules(struct config *c, const struct json *of);
void config_full_tying(struct config *c, const struct json *at,
                       const struct json *of);

/* Whether it is for a trainer whose defaults are not read: that is reported, and
 * nothing is read; of what was taken for TrainingArguments, and for
 * Megatron-LM's flags. [config_others.c] */
bool config_others_trainer(struct config *c);
bool config_others_megatron(struct config *c);

/* What programs around TrainingArguments say in words of their own. */
void config_kin(struct config *c);
bool config_kin_is_bf16(const struct config *c);
/* "zero3" for a file of ms-swift's; false where it is none of its names. */
bool config_kin_zero(struct config *c, const struct json *value);

/* fms-hf-tuning's own words and defaults: who trains what (false where that is
 * not modelled), how frozen weights are kept, the kernel; weights are loaded in
 * bf16 where the file does not say. */
bool config_fms_is(const struct config *c);
bool config_fms_adapters(struct config *c, bool *lora);
void config_fms_base(struct config *c);
void config_fms_attention(struct config *c);
bool config_fms_loads_bf16(const struct config *c);

/* GPUs and GPUs of a node, from torchrun's flags. */
void config_world(struct config *c);

/* A kernel's name says how fast it is too; "sdpa" leaves the choice to PyTorch.
 * [transformers/modeling_utils.py, hub_kernels.py; LLaMA-Factory; ms-swift] */
#define CONFIG_FLASH_2 "=flash+attention_kernel=flash2 "
#define CONFIG_FLASH_3 "=flash+attention_kernel=flash3 "
#define CONFIG_FLASH_NAMES                                                     \
    "flash_attention_2" CONFIG_FLASH_2 "flash_attention_3" CONFIG_FLASH_3

/* What Accelerate says of FSDP, in its file (at "fsdp_config.") and as flags of
 * `accelerate launch` (at ""). `words` is the row of a key: written, or only
 * read. [accelerate/commands/launch.py, utils/dataclasses.py,
 * FullyShardedDataParallelPlugin; version 1.15] */
#define CONFIG_FSDP_ROWS(at, words)                                            \
    LATER(at "fsdp_version"), LATER(at "fsdp_sharding_strategy"),              \
        LATER(at "fsdp_reshard_after_forward"),                                \
        words(at "fsdp_offload_params", KEY_OFFLOAD_PARAMS,                    \
              "true=cpu false="),                                              \
        words(at "fsdp_activation_checkpointing", KEY_RECOMPUTE,               \
              "true=full false="),                                             \
        ONLY(at "fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),            \
        QUIET(at "fsdp_backward_prefetch"),                                    \
        QUIET(at "fsdp_backward_prefetch_policy"),                             \
        ONLY(at "fsdp_forward_prefetch", "false"),                             \
        ONLY(at "fsdp_activation_checkpointing_offload", "false"),             \
        QUIET(at "fsdp_cpu_ram_efficient_loading"),                            \
        QUIET(at "fsdp_state_dict_type"), QUIET(at "fsdp_sync_module_states"), \
        LATER(at "fsdp_use_orig_params"),                                      \
        LATER(at "fsdp_transformer_layer_cls_to_wrap"),                        \
        QUIET(at "fsdp_min_num_params")

/* The same of its Megatron-LM and of ranks' split: `same`, `given`, `word` are
 * the rows of keys. */
#define CONFIG_MEGATRON_ROWS(at, same, given, word)                            \
    same(at "megatron_lm_tp_degree", KEY_TP),                                  \
        same(at "megatron_lm_pp_degree", KEY_PP),                              \
        same(at "megatron_lm_num_micro_batches", KEY_GRAD_ACCUM),              \
        same(at "megatron_lm_sequence_parallelism", KEY_SEQUENCE_PARALLEL),    \
        word(at "megatron_lm_recompute_activations", KEY_RECOMPUTE,            \
             "true=selective false="),                                         \
        word(at "megatron_lm_use_distributed_optimizer", KEY_ZERO,             \
             "true=1 false=0"),                                                \
        LATER(at "megatron_lm_gradient_clipping"),                             \
        given(at "megatron_lm_expert_model_parallel_size", KEY_EP),            \
        given(at "megatron_lm_expert_tensor_parallel_size", KEY_ETP),          \
        same(at "megatron_lm_context_parallel_size", KEY_CP),                  \
        word(at "megatron_lm_optimizer_cpu_offload", KEY_OFFLOAD_OPTIMIZER,    \
             "true=cpu false="),                                               \
        WORDS_READ(at "megatron_lm_recompute_granularity", KEY_RECOMPUTE,      \
                   "full=full selective=selective"),                           \
        ASIDE(at "megatron_lm_recompute_method",                               \
              "see --recompute-layers, --recompute-granularity"),              \
        ASIDE(at "megatron_lm_recompute_num_layers",                           \
              "see --recompute-layers, --recompute-granularity"),              \
        ASIDE(at "megatron_lm_decoder_last_pipeline_num_layers",               \
              "see --pipeline-layers"),                                        \
        ASIDE(at "megatron_lm_use_custom_fsdp", "see --engine megatron-fsdp")

#define CONFIG_PARALLEL_ROWS(at)                                               \
    SAME_READ(at "parallelism_config_tp_size", KEY_TP),                        \
        LATER(at "parallelism_config_cp_size"),                                \
        LATER(at "parallelism_config_dp_shard_size"),                          \
        LATER(at "parallelism_config_dp_replicate_size"),                      \
        LATER(at "parallelism_config_cp_comm_strategy"),                       \
        QUIET(at "parallelism_config_cp_backend"),                             \
        LATER(at "parallelism_config_sp_size"),                                \
        ONLY(at "parallelism_config_sp_backend", "deepspeed"),                 \
        QUIET(at "parallelism_config_sp_seq_length"),                          \
        QUIET(at "parallelism_config_sp_seq_length_is_variable"),              \
        WORDS_READ(at "parallelism_config_sp_attn_implementation",             \
                   KEY_ATTENTION,                                              \
                   CONFIG_FLASH_NAMES "sdpa=sdpa flex_attention=?")

/* Flags of `accelerate launch`, beside TrainingArguments or not. */
#define CONFIG_LAUNCH_ROWS                                                     \
    CONFIG_FSDP_ROWS("", WORDS_READ),                                          \
        CONFIG_MEGATRON_ROWS("", SAME_READ, SAME_READ, WORDS_READ),            \
        CONFIG_PARALLEL_ROWS(""), LATER("use_megatron_lm"),                    \
        LATER("use_parallelism_config"), LATER(CONFIG_LAUNCHER),               \
        LATER(CONFIG_VISIBLE), LATER("exclude"), LATER("gpu_ids"),             \
        LATER("multi_gpu")

/* Whether the optimizer has the parameters themselves; version 2 has no
 * others. */
void config_orig_params(struct config *c, const struct json *value, bool two);

/* accelerate launch --use_fsdp, --use_deepspeed, --use_megatron_lm: who holds
 * what. False where none is said. */
bool config_launched(struct config *c, enum config_holder *holder);

#endif
