Hosts of several sizes, given by themselves.
== args
llama-7b --hostfile hosts --fast
== file hosts
worker-0 slots=8
worker-1 slots=4
== stdout ~
llama-7b: 6.74B parameters on 12 x a100-80gb
  - hosts: hosts have 4 to 8 GPUs: nodes of 8 are taken, the last not full (--gpus-per-node)
