== args
explain llama-7b --pp 4 --gpus 8 --grad-accum 8 --pipeline-layers 4,12,8,8
== stdout ~
    last input of each chunk, and its gradient = 32.00 MiB (33,554,432 B)
          chunks * tensors * bytes of hidden states
        = 1 * 2 * 16777216
