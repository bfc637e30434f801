One of a gated delta net's two input matrices, by its name: as PEFT counts.
== args
qwen3-next-80b-a3b --gpus 8 --framework hf --peft adapter_config.json --json --fast
== file adapter_config.json
{"peft_type": "LORA", "r": 8, "target_modules": ["in_proj_ba"], "task_type": "CAUSAL_LM"}
== stdout ~
"trainable_parameters": 608256
