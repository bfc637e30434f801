== args
explain llama-2-7b --zero 3 --gpus 16 --hpz-partition-size 8
== stdout ~
  shards: one copy of the states (zero) = 16 ranks
  hpz: a second copy of the weights = 8 ranks
        stride 1; 2 such groups
      = ranks 0, 1, 2, 3, 4, 5, 6, 7: 1 node
