The line's stage goes before its file's.
== args
llama-7b --torchrun run.sh --json
== file run.sh
accelerate launch --config_file acc.yaml --use_deepspeed --zero_stage 3 train.py
== file acc.yaml
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 2}
num_processes: 16
== stdout ~
"zero": 3
"gpus": 16
