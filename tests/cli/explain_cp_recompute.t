What is recomputed sends again: 4 passes of the ring.
== args
explain llama-3-8b --framework megatron --gpus 8 --cp 4 --seq-len 8192 --micro-batch 2 --recompute selective --recompute-modules core_attn
== stdout ~
    keys and values = 6.00 GiB (6,442,450,944 B)
