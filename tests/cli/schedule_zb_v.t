Rank r holds the r-th and the last but r of eight halves.
== args
estimate gpt3-13b --framework megatron --gpus 16 --pp 4 --schedule zb-v --seq-len 2048 --gpu a100-80gb
== stdout ~
dp 4, tp 1, pp 4 (zb-v), zero 1 (megatron); bf16-mixed; sequences of 2,048 tokens, 1 a pass, 32 a step
      0  0-4,35-39+embed+head   3.41B          8
      3  15-19,20-24            3.15B          8
  bubble                    3.7%
  - zb-v: the order in which forward and both halves of backward are equally long
