== args
explain mixtral-8x7b --gpus 64 --tp 2 --cp 2 --pp 2 --ep 4
== stdout ~
groups of rank 0
  tp: parts of each matrix, and activations of the same tokens = 2 ranks
        stride 1; 32 such groups
      = ranks 0, 1: 1 node
  cp: parts of the same sequences = 2 ranks
        stride 2; 32 such groups
      = ranks 0, 2: 1 node
  dp: copies of the parameters; other sequences = 8 ranks
        stride 4; 8 such groups
      = ranks 0, 4, 8, 12, 16, 20, 24, 28: 4 nodes
  shards: one copy of the states (zero) = 16 ranks
        stride 2; 4 such groups
      = ranks 0, 2, 4 ... 30: 4 nodes
  ep: the experts of a layer, a share each = 4 ranks
        stride 2; 16 such groups
      = ranks 0, 2, 4, 6: 1 node
  expert dp: copies of the same experts = 4 ranks
        stride 8; 16 such groups
  pp: the layers, a stage each = 2 ranks
        stride 32; 32 such groups
      = ranks 0, 32: 2 nodes
