Of --megatron-args, and back to it.
== args
llama-7b --gpus 8 --megatron-args run.sh --emit megatron
== file run.sh
torchrun pretrain_gpt.py --pipeline-model-parallel-size 4 --bf16 --micro-batch-size 1 --global-batch-size 16 \
   --defer-embedding-wgrad-compute --wgrad-deferral-limit 3 --hidden-dropout 0 --attention-dropout 0
== stdout ~
    --defer-embedding-wgrad-compute
    --wgrad-deferral-limit 3
