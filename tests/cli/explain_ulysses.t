Ulysses: heads for tokens around attention, forward, again where layers are
recomputed, backward.
== args
explain llama-3-8b --framework deepspeed --zero 3 --gpus 16 --cp 8 --seq-len 65536 --recompute full
== stdout ~
  cp: parts of the same sequences; heads for tokens around attention = 8 ranks
    heads for tokens, and back = 13.12 GiB (14,092,861,440 B)
