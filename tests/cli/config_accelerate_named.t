A script names Accelerate's file, whose batches and GPUs are the script's.
== args
llama-7b --training-args run.sh --json
== file run.sh
accelerate launch --config_file=z3.yaml --num_processes 4 train.py --bf16 True --gradient_accumulation_steps 8 --model_max_length 1024
== file z3.yaml
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3, gradient_accumulation_steps: 1}
mixed_precision: 'no'
num_machines: 1
num_processes: 8
== stdout ~
"gpus": 4
"framework": "deepspeed"
"zero": 3
"grad_accum": 8
"precision": "bf16-mixed"
