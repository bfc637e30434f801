Megatron-DeepSpeed without its pipeline engine, at stage 0.
== args
gpt2 --gpus 8 --megatron-args run.sh
== file run.sh
pretrain_gpt.py --fp16 --deepspeed --zero-stage 0 --no-pipeline-parallel
== stdout ~
--no-pipeline-parallel is not modelled below ZeRO-2: DeepSpeed's pipeline engine is assumed
