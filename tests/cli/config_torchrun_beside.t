The file that the script names lies beside it.
== args
llama-7b --torchrun run/train.sh --json
== file run/train.sh
deepspeed --num_gpus 4 train.py --deepspeed ds.json
== file run/ds.json
{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}
== stdout ~
"gpus": 4
"framework": "deepspeed"
"zero": 2
"precision": "bf16-mixed"
