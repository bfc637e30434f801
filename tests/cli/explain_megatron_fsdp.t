== args
explain llama-7b --framework megatron --zero 3 --gpus 8
== stdout ~
    whole gradients, on their way to the shards = 4.26 GiB (4,571,971,584 B)
          elements * bytes per gradient
        = 1142992896 * 4
