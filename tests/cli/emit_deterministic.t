Megatron-LM's mode refuses some of NCCL's algorithms: only where asked for.
== args
llama-7b --gpus 4 --framework megatron --deterministic --emit megatron
== stdout ~
export CUBLAS_WORKSPACE_CONFIG=:4096:8
export NCCL_ALGO=Ring NVTE_ALLOW_NONDETERMINISTIC_ALGO=0
torchrun --nnodes 1 --nproc_per_node 4 pretrain_gpt.py
    --deterministic-mode
