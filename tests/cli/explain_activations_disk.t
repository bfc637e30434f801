Those that may be unwritten are on the GPU, and what takes the disk's time.
== args
explain llama-7b --lora-rank 16 --recompute full --offload-activations nvme --micro-batch 4 --seq-len 4096 --gpu a100-80gb
== stdout ~
    checkpoints not yet written to the disk = 1.00 GiB (1,073,741,824 B)
          checkpoints * bytes
        = 8 * 134217728
      disks: checkpoints, written
      disks: checkpoints, read
