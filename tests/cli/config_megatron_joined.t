A backslash at the end of a line ends a word too, where the next line begins with a blank.
== args
llama-7b --gpus 8 --megatron-args run.sh --json
== file run.sh
PP_SIZE=2
torchrun pretrain_gpt.py --bf16 --micro-batch-size 12\
    --pipeline-model-parallel-size $PP_SIZE\
    --tensor-model-parallel-size 2
== stdout ~
"micro_batch": 12,
"pp": 2,
"tp": 2,
