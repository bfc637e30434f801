Two commands of one script: the last one counts, and that is said.
== args
llama-7b --torchrun train.sh
== file train.sh
NODES=2
torchrun --nproc_per_node 4 --nnodes 3 warm_up.py
# then
deepspeed --num_gpus 8 --num_nodes $NODES \
    train.py
== stdout ~
llama-7b: 6.74B parameters on 16 x a100-80gb
  - train.sh: 2 commands start programs, the first on line 2: only the last is read, on line 4
