== args
explain gpt3-13b --framework megatron --gpus 16 --pp 4 --schedule zb-h1 --grad-accum 8 --seq-len 2048 --gpu a100-80gb
== stdout ~
    in flight, or waiting for weights' gradients = 10.01 GiB (10,747,379,712 B)
