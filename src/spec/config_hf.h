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
void config_hf_put_optim(struct emit *e, const struct run *r);

/* DeepSpeed's configuration, or its file, by the Trainer's flag or the
 * launcher's; NULL where neither names one. */
const struct json *config_deepspeed_file(const struct config *c);

/* What programs around TrainingArguments say in words of their own. */
void config_kin(struct config *c);
bool config_kin_is_bf16(const struct config *c);
/* "zero3" for a file of ms-swift's; false where it is none of its names. */
bool config_kin_zero(struct config *c, const struct json *value);

/* GPUs and GPUs of a node, from torchrun's flags. */
void config_world(struct config *c);

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
        QUIET(at "fsdp_use_orig_params"),                                      \
        QUIET(at "fsdp_transformer_layer_cls_to_wrap"),                        \
        QUIET(at "fsdp_min_num_params")

/* Version and stage of it. */
void config_fsdp(struct config *c, const char *at);

/* accelerate launch --use_fsdp, --use_deepspeed: who holds what. False where
 * neither is said. */
bool config_launched(struct config *c, enum config_holder *holder);

#endif
