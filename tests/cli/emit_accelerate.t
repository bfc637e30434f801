== args
llama-7b --gpus 16 --framework fsdp --zero 2 --reduce-dtype bf16 --recompute full --emit accelerate
== stdout
num_processes: 16
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_version: 1
  fsdp_sharding_strategy: "SHARD_GRAD_OP"
  fsdp_use_orig_params: true
  fsdp_auto_wrap_policy: "TRANSFORMER_BASED_WRAP"
compute_environment: "LOCAL_MACHINE"
distributed_type: "FSDP"
num_machines: 2
machine_rank: 0
mixed_precision: "bf16"
