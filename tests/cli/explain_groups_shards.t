Who has the same shard, and whose experts' states are one copy.
== args
explain mixtral-8x7b --framework megatron --tp 2 --pp 2 --ep 4 --gpus 64 --shard-degree 8
== stdout ~
  shards: one copy of the states (zero) = 8 ranks
        stride 2; 8 such groups
      = ranks 0, 2, 4, 6, 8, 10, 12, 14: 2 nodes
  replicas: copies of the same shard = 2 ranks
        stride 16; 32 such groups
      = ranks 0, 16: 2 nodes
  expert dp: copies of the same experts = 4 ranks
        stride 8; 16 such groups
      = ranks 0, 8, 16, 24: 4 nodes
  expert shards: one copy of these experts' states (zero) = 2 ranks
        stride 8; 32 such groups
      = ranks 0, 8: 2 nodes
