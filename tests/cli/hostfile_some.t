The line takes some of the hosts' GPUs.
== args
llama-7b --torchrun train.sh --fast
== file train.sh
deepspeed --hostfile=hosts --include="worker-0:0,1,2,3@worker-2" train.py
== file hosts
worker-0 slots=8
worker-1 slots=8
worker-2 slots=4
== stdout ~
llama-7b: 6.74B parameters on 8 x a100-80gb
