A file of before July 2025 has its layers compiled by [training]: nothing but layers is wrapped.
== args
llama-3.1-8b --torchtitan a.toml --gpus 8 --json
== file a.toml
[training]
batch_size = 1
seq_len = 4096
data_parallel_shard_degree = 8
compile = true
== stdout ~
"fsdp_units": "layers"
"loss": "standard"
