TrainingArguments have no word for weights in 16 bits under DDP.
== args
llama-7b --gpus 8 --framework hf --precision bf16 --emit torchrun
== stdout
torchrun --nnodes 1 --nproc_per_node 8 \
    train.py
== stderr
memplan: note: not in it: --precision; see --emit training-args
