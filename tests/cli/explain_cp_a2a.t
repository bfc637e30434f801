Megatron's heads for tokens: q, k, v and the result, forward and backward.
(4096 + 2 * 1024 + 4096) * 2 bytes * 4096 tokens * 3/4 * 2 * 32 layers
== args
explain llama-3-8b --framework megatron --gpus 8 --cp 4 --seq-len 8192 --micro-batch 2 --cp-comm a2a
== stdout ~
  cp: parts of the same sequences; heads for tokens around attention = 4 ranks
    heads for tokens, and back = 3.75 GiB (4,026,531,840 B)
