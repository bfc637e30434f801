A line without a count is all GPUs of a node, less what it excludes.
== args
llama-7b --torchrun run.sh --gpus-per-node 4 --json
== file run.sh
deepspeed --exclude localhost:0 train.py --deepspeed ds2.json
== file ds2.json
{"zero_optimization": {"stage": 2}}
== stdout ~
"gpus": 3
"zero": 2
without --num_gpus, but for those of --exclude, it is all GPUs of a node
