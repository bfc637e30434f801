Of two files of the name, the one beside the script can be read.
== args
llama-7b --torchrun run/train.sh --json
== file run/train.sh
deepspeed --num_gpus 4 train.py --deepspeed ds.json
== denied ds.json
== file run/ds.json
{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}
== stdout ~
"zero": 2
