A network of convolutions has no TrainingArguments.
== args
resnet-50 --gpus 8 --emit torchrun
== stdout
torchrun --nnodes 1 --nproc_per_node 8 \
    train.py
