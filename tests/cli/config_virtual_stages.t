Layers of a virtual stage, where the script leaves the model to others.
== args
llama-7b --megatron-args run.sh --json
== file run.sh
torchrun --nproc_per_node 8 pretrain_gpt.py --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 --bf16 --global-batch-size 64 --micro-batch-size 1
== stdout ~
"pp": 4
"vpp": 4
"schedule": "interleaved"
