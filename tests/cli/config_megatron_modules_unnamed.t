No modules are named, which Megatron refuses: that is said.
== args
mixtral-8x7b --gpus 8 --megatron-args run.sh
== file run.sh
pretrain_gpt.py --expert-model-parallel-size 4 --bf16 --fine-grained-activation-offloading
== stdout ~
--fine-grained-activation-offloading without --offload-modules, which Megatron refuses: nothing waits on the CPU
