Virtual stages that do not divide a stage, which Megatron refuses.
== args
llama-7b --megatron-args run.sh
== file run.sh
torchrun --nproc_per_node 8 pretrain_gpt.py --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3 --bf16 --global-batch-size 64 --micro-batch-size 1
== stderr ~
virtual stages of 3 layers do not divide a stage of 8
write a divisor of 8 in the file, or --vpp beside it
== exit
3
