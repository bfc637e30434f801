Under FSDP's mixed precision it changes nothing.
== args
llama-7b --gpus 8 --training-args run.yaml
== file run.yaml
model_name_or_path: huggyllama/llama-7b
stage: sft
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 1
bf16: true
pure_bf16: true
fsdp: full_shard auto_wrap
fsdp_config:
  version: 2
== stdout ~
bf16-mixed; sequences
pure_bf16 beside bf16: FSDP makes what is trained 32-bit all the same
