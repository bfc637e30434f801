LLaMA-Factory's pure_bf16 keeps weights and what is trained in 16 bits.
== args
llama-7b --training-args run.yaml --json
== file run.yaml
model_name_or_path: huggyllama/llama-7b
stage: sft
template: default
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 1
pure_bf16: true
== stdout ~
"precision": "bf16"
"optimizer_dtype": "bf16"
