device_map: the layers of one process over two GPUs, one at work at a time.
== args
estimate llama-7b --schedule naive --gpus 2 --lora-rank 16 --gpu rtx-4090
== stdout ~
dp 1, tp 1, pp 2 (naive), zero 0 (ddp); bf16-amp; sequences of 2,048 tokens, 1 a pass, 1 a step
      0  0-15+embed   3.39B          1
      1  16-31+head   3.39B          1
  MFU                     23.9%
  - device_map: one process, one GPU at work at a time; what yours says is --pipeline-layers
