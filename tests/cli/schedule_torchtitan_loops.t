Chunks go down the ranks again; embedding and head count as layers of the first and the last.
== args
estimate llama-3-8b --framework torchtitan --gpus 32 --pp 4 --vpp 2 --schedule zb-interleaved --recompute none --seq-len 4096 --gpu h100-80gb --fast
== stdout ~
dp 8, tp 1, pp 4 (zb-interleaved), vpp 2, zero 3 (fsdp2); bf16-mixed
      0  0-3,17-20+embed
      1  4-8,21-24
      3  13-16,29-31+head
