Stages as torchtitan cuts them: 34 layers, embedding and head among them, over eight.
== args
estimate llama-3-8b --framework torchtitan --gpus 32 --pp 4 --schedule zb-v --recompute none --seq-len 4096 --gpu h100-80gb --fast
== stdout ~
dp 8, tp 1, pp 4 (zb-v), zero 3 (fsdp2); bf16-mixed
      0  0-3,29-31+embed+head   2.58B          8
      1  4-8,25-28              1.96B          8
      3  13-16,17-20            1.74B          8
  - embedding and head count as a layer each of the stages, as in torchtitan (--pipeline-layers)
