FSDP shards over the ranks of context parallelism too.
== args
llama-7b --accelerate fsdp.yaml --json
== file fsdp.yaml
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 1
  parallelism_config_cp_size: 4
== stdout ~
"shard_degree": 8,
"dp": 4,
"cp": 4,
