The flags of accelerate launch are the keys of its file.
== args
llama-7b --torchrun train.sh --json
== file train.sh
accelerate launch --use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward false \
    --num_processes 16 --num_machines 2 --mixed_precision bf16 train.py
== stdout ~
"gpus": 16
"engine": "fsdp2"
"zero": 2
"precision": "bf16-mixed"
