Modules without the flag that has them go stay, as in Megatron: that is said.
== args
mixtral-8x7b --gpus 8 --megatron-args run.sh
== file run.sh
pretrain_gpt.py --expert-model-parallel-size 4 --bf16 --offload-modules core_attn
== stdout ~
--offload-modules has no effect without --fine-grained-activation-offloading
