Version 1's hybrid sharding is over a node, and the hint is a way out.
== args
gpt2 --gpus 8 --framework fsdp --shard-degree 4 --emit accelerate
== stderr
memplan: --shard-degree: shard_degree '4' has no word in a file of accelerate
  hint: version 1 shards over a node (HYBRID_SHARD): use --engine fsdp2, or --shard-degree 8
== exit
3
