A file that is given goes before one that the script names.
== args
llama-7b --deepspeed mine.json --torchrun train.sh --json
== file train.sh
deepspeed --num_gpus 4 train.py --deepspeed ds.json
== file ds.json
{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}
== file mine.json
{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}
== stdout ~
"zero": 3
