A hostfile that the line names lies beside the script: GPUs of its hosts.
== args
llama-7b --torchrun run/train.sh --fast
== file run/train.sh
deepspeed --hostfile hosts train.py --deepspeed ds.json
== file run/hosts
# two of one kind
worker-0 slots=8
worker-1 slots=8
== file run/ds.json
{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}
== stdout ~
llama-7b: 6.74B parameters on 16 x a100-80gb
dp 16, tp 1, pp 1, zero 2 (deepspeed); bf16-mixed
