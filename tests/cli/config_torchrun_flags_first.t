Flags of accelerate launch go before the file that it names.
== args
llama-7b --torchrun train.sh --json
== file train.sh
accelerate launch --config_file a.yaml --num_processes 4 --mixed_precision fp16 train.py
== file a.yaml
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 8
fsdp_config:
  fsdp_version: 2
== stdout ~
"gpus": 4
"engine": "fsdp2"
"precision": "fp16-mixed"
