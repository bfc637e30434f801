Flags of a command that another one comes after are not this one's.
== args
llama-7b --training-args train.sh --json
== file train.sh
accelerate launch --num_processes 4 sft.py --gradient_checkpointing \
    --per_device_train_batch_size 32
accelerate launch --num_processes 2 dpo.py \
    --per_device_train_batch_size 3
== stdout ~
"gpus": 2
"micro_batch": 3
"recompute": "none"
