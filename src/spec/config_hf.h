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

/* What programs around TrainingArguments say in words of their own. */
void config_kin(struct config *c);
bool config_kin_is_bf16(const struct config *c);
/* "zero3" for a file of ms-swift's; false where it is none of its names. */
bool config_kin_zero(struct config *c, const struct json *value);

/* GPUs and GPUs of a node, from torchrun's flags. */
void config_world(struct config *c);

#endif
