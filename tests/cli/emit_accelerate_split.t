Sizes whose product is the number of processes, without which Accelerate refuses them.
== args
llama-7b --gpus 16 --framework fsdp --engine fsdp2 --cp 2 --cp-comm all_gather --attention sdpa --emit accelerate
== stdout ~
num_processes: 16
  parallelism_config_dp_shard_size: 8
  parallelism_config_cp_size: 2
