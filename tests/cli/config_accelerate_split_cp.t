... and over them alone, where dp_shard_size is 1.
== args
llama-7b --accelerate fsdp.yaml --json
== file fsdp.yaml
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
parallelism_config:
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 1
  parallelism_config_cp_size: 8
== stdout ~
"shard_degree": 8,
"dp": 1,
