== args
llama-7b --gpus 8 --zero 3 --recompute full --grad-accum 4 --emit accelerate
== stdout
num_processes: 8
deepspeed_config:
  zero_stage: 3
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  zero3_init_flag: true
compute_environment: "LOCAL_MACHINE"
distributed_type: "DEEPSPEED"
num_machines: 1
machine_rank: 0
mixed_precision: "bf16"
== stderr
memplan: note: not in it: --recompute; gradient_checkpointing true of TrainingArguments says it
