Shards that are part of a context are nobody's.
== args
llama-7b --gpus 16 --framework fsdp --engine fsdp2 --cp 4 --cp-comm all_gather --attention sdpa --shard-degree 2 --emit accelerate
== stderr
memplan: --shard-degree: shard_degree '2' has no word in a file of accelerate
  hint: states are sharded over context parallel ranks too: use a multiple of 4
== exit
3
