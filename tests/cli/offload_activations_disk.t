Checkpoints in files: 32 of 4 x 4096 x 4096 numbers of 16 bits, 4 being written.
== args
llama-7b --lora-rank 16 --recompute full --offload-activations nvme --micro-batch 4 --seq-len 4096 --gpu a100-80gb --gpus 8
== stdout ~
beside the GPU, GiB; a node has 8 of the GPUs
               a GPU  a node
  host memory   0.50    4.00
  disk          4.00   32.00
each GPU in a step: 4.00 GiB to the host, 8.00 GiB back
each GPU in a step: 4.00 GiB to disk, 4.00 GiB back
transfers to and from disks
  - a node's disks read 10 GB/s and write 5
