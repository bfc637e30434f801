== args
llama-7b --gpus 8 --megatron-args run.sh --json
== file run.sh
TP=2
torchrun pretrain_gpt.py --tensor-model-parallel-size $TP --bf16 \
   --micro-batch-size 1 --swiglu
== stdout ~
"framework": "megatron"
"tp": 2
run.sh: of the model, which is MODEL's: --swiglu
