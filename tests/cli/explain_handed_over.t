== args
explain llama-7b --pp 4 --vpp 8 --gpus 8 --grad-accum 8
== stdout ~
    received and sent hidden states still named = 48.00 MiB (50,331,648 B)
          tensors * bytes of hidden states
        = 3 * 16777216
