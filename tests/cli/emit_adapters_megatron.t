== args
llama-7b --lora-rank 8 --gpus 2 --tp 2 --emit megatron
== stdout
export CUBLAS_WORKSPACE_CONFIG=:4096:8
torchrun --nnodes 1 --nproc_per_node 2 pretrain_gpt.py \
    --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 1 \
    --context-parallel-size 1 \
    --sequence-parallel \
    --micro-batch-size 1 \
    --global-batch-size 1 \
    --seq-length 2048 \
    --optimizer adam \
    --no-gradient-accumulation-fusion \
    --use-distributed-optimizer \
    --bf16 \
    --no-create-attention-mask-in-dataloader \
    --hidden-dropout 0 \
    --attention-dropout 0
== stderr
memplan: note: not in it: --lora-rank; a recipe of Megatron-Bridge's has the adapters, as peft.dim and peft.target_modules
