Gathered keys and values, again in backward, and their gradients: 3 passes.
3 * 3 * 2 * 1024 * 2 bytes * 4096 tokens * 32 layers
== args
explain llama-3-8b --framework megatron --gpus 8 --cp 4 --seq-len 8192 --micro-batch 2 --cp-comm all_gather
== stdout ~
  cp: parts of the same sequences; keys and values gathered = 4 ranks
    keys and values = 4.50 GiB (4,831,838,208 B)
