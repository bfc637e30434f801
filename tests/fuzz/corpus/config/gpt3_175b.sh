#!/bin/bash
# GPT-3 175B on 16 nodes
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-16}
TP=8
PP=16
MASTER_ADDR=localhost
CHECKPOINT_PATH=$1

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)

GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --train-iters 500000
    --weight-decay 0.1
    --clip-grad 1.0
    --fp16
    --lr 6.0e-5
    --recompute-granularity selective --recompute-modules core_attn mlp
    --use-distributed-optimizer
)

MODEL_PARALLEL_ARGS=(
        --tensor-model-parallel-size ${TP}
        --pipeline-model-parallel-size "$PP" --sequence-parallel
        --num-layers-per-virtual-pipeline-stage 3
)

EVAL_AND_LOGGING_ARGS=(
    --log-interval 100
    --save "$CHECKPOINT_PATH"
    --load $CHECKPOINT_PATH)

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} --no-create-attention-mask-in-dataloader \
    ${MODEL_PARALLEL_ARGS[@]} ${EVAL_AND_LOGGING_ARGS[@]}
