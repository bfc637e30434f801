Its adapters too.
== args
llama-7b --training-args run.yaml --json
== file run.yaml
model_name_or_path: huggyllama/llama-7b
stage: sft
finetuning_type: lora
lora_rank: 8
lora_target: all
cutoff_len: 2048
per_device_train_batch_size: 1
pure_bf16: true
== stdout ~
"precision": "bf16"
"lora_dtype": "bf16"
"base_dtype": "bf16"
