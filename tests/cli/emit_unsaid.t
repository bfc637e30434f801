== args
llama-7b --gpus 8 --framework hf --gpu h100-80gb --recompute full --grad-accum 4 --optimizer lion --emit accelerate
== stdout
num_processes: 8
compute_environment: "LOCAL_MACHINE"
distributed_type: "MULTI_GPU"
num_machines: 1
machine_rank: 0
mixed_precision: "bf16"
== stderr
memplan: note: not in it: --gpu; no launch file says it
memplan: note: not in it: --grad-accum; gradient_accumulation_steps 4 of TrainingArguments says it
memplan: note: not in it: --optimizer; optim "lion_32bit" of TrainingArguments says it
memplan: note: not in it: --recompute; gradient_checkpointing true of TrainingArguments says it
