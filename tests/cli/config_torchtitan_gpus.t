The degrees of a file are all there is: 64 GPUs are too many for them.
== args
llama-7b --torchtitan a.toml --gpus 64
== file a.toml
[parallelism]
data_parallel_shard_degree = 4
tensor_parallel_degree = 8
== stderr
memplan: --dp: dp 4 contradicts the rest: 64 GPUs / (tp 8 x pp 1 x cp 1) make dp 8 (a.toml: parallelism.data_parallel_shard_degree)
  hint: change it there, or use --gpus 32
== exit
3
