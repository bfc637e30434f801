== args
explain bloom-1b7 --framework megatron-deepspeed --implementation megatron-local --gpus 8 --pp 2 --micro-batch 4 --global-batch 64 --precision bf16-mixed
== stdout ~
    gradients of earlier micro-batches = 2.08 GiB (2,236,211,200 B)
          P * bytes per element / N
        = 1118105600 * 8 / 4
