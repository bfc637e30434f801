Without adapters nothing is copied.
== args
llama-3.2-1b --training-args run.yaml
== file run.yaml
stage: sft
finetuning_type: full
additional_target: lm_head
per_device_train_batch_size: 1
bf16: true
== stdout ~
llama-3.2-1b: 1.24B parameters on 1 x a100-80gb
additional_target has no effect without adapters
