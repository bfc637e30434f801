Words on the first stage and the head on the last are one tensor.
== args
explain gpt2 --framework megatron --pp 4 --gpus 8 --tp 2
== stdout ~
  pp: the layers, a stage each = 4 ranks
        stride 2; 2 such groups
      = ranks 0, 2, 4, 6: 1 node
  tied: words and head, which are one tensor = 2 ranks
        stride 6; 2 such groups
      = ranks 0, 6: 1 node
