LLaMA-Factory's additional_target is PEFT's modules_to_save.
== args
llama-3.2-1b --training-args run.yaml --json
== file run.yaml
stage: sft
finetuning_type: lora
lora_rank: 16
lora_target: q_proj,v_proj
additional_target: embed_tokens,lm_head
per_device_train_batch_size: 1
bf16: true
== stdout ~
"parameters": 1762854912,
"trainable_parameters": 527040512
"lora_full_modules": [
