... or follows from all GPUs.
== args
llama-7b --zero 3 --torchrun run.sh --gpus 12 --json
== file run.sh
torchrun --nnodes 3 --nproc_per_node=gpu train.py
== stdout ~
"gpus": 12
"gpus_per_node": 4
