An option goes before the file that the line names.
== args
llama-7b --torchrun train.sh --hostfile mine --fast
== file train.sh
deepspeed --hostfile hosts --num_nodes 1 train.py
== file hosts
worker-0 slots=8
== file mine
a slots=2
b slots=2
== stdout ~
llama-7b: 6.74B parameters on 2 x a100-80gb
