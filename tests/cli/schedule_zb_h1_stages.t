Each stage holds about as much as the first: in flight, or waiting.
== args
estimate gpt3-13b --framework megatron --gpus 16 --pp 4 --schedule zb-h1 --grad-accum 8 --seq-len 2048 --gpu a100-80gb
== stdout ~
      0  0-9+embed    3.41B          4  28.69   12.51
      2  20-29        3.15B          2  26.48   12.53
  bubble                    9.9%
