Of one data-parallel rank nothing is wrapped, and so it is said back.
== args
llama-7b --torchtitan a.toml --emit torchtitan
== file a.toml
[parallelism]
data_parallel_shard_degree = 1
tensor_parallel_degree = 8
[training]
local_batch_size = 1
== stdout ~
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
context_parallel_degree = 1
data_parallel_replicate_degree = 1
data_parallel_shard_degree = 1
