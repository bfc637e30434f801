== args
llama-7b --torchtitan a.toml --json
== file a.toml
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "none"
== stdout ~
"gpus": 16
"engine": "fsdp2"
"shard_degree": 4
