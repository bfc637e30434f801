Two stages a rank, one from either end; five micro-batches in flight of eight.
== args
estimate gpt3-13b --framework megatron --gpus 16 --pp 4 --schedule dualpipe --seq-len 2048 --gpu a100-80gb
== stdout ~
dp 4, tp 1, pp 4 (dualpipe), zero 1 (megatron)
      0  0-9,30-39+embed+head   6.56B          5
      2  10-19,20-29            6.29B          5
  bubble                    3.8%
  - DualPipe: two copies of the weights and of their gradients; gradients are summed, and states sharded, over both
