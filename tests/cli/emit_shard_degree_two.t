== args
gpt2 --gpus 8 --framework fsdp --engine fsdp2 --shard-degree 4 --emit accelerate
== stdout ~
parallelism_config:
  parallelism_config_dp_shard_size: 4
  parallelism_config_dp_replicate_size: 2
