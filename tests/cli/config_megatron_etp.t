Megatron's own default splits experts over tp, which 64 GPUs are too few for.
== args
deepseek-v2-lite --megatron-args run.sh
== file run.sh
torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py --bf16 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 \
  --expert-model-parallel-size 16
== stderr
memplan: --etp: experts are split over tp by default, and etp 2 x ep 16 does not divide the 16 ranks of a stage
  hint: use --etp 1, in the script --expert-tensor-parallel-size 1
== exit
3
