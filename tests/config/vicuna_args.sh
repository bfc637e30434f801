#!/bin/sh
# Full fine-tuning with the Trainer's flags, as scripts of 2023 start it.
NODES=2
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
GPUS=$((NODES * GPUS_PER_NODE))
SAMPLES=128

torchrun --nnodes=$NODES --nproc_per_node=$GPUS_PER_NODE train.py \
    --output_dir out \
    --bf16 True \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps $((SAMPLES / (2 * GPUS))) \
    --model_max_length 2048 \
    --gradient_checkpointing True \
    --fsdp "full_shard auto_wrap" \
    --optim adamw_torch_fused
