Nodes whose GPUs are all used: how many a node has is said beside.
== args
llama-7b --zero 3 --torchrun run.sh --gpus-per-node 4
== file run.sh
torchrun --nnodes 3 --nproc_per_node=gpu train.py
== stdout ~
llama-7b: 6.74B parameters on 12 x a100-80gb
  - run.sh: --nproc-per-node gpu is all GPUs of a node
