== args
llama-7b --accelerate a.yaml --json
== file a.yaml
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
mixed_precision: bf16
num_processes: 16
num_machines: 2
== stdout ~
"gpus": 16
"engine": "fsdp2"
"zero": 3
