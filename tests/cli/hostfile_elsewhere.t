One that is not here: a node is taken, and that is said.
== args
llama-7b --torchrun train.sh --fast
== file train.sh
deepspeed --hostfile /job/of/a/cluster train.py
== stdout ~
llama-7b: 6.74B parameters on 8 x a100-80gb
  - train.sh: without --num_gpus it is all GPUs of a node
  - '/job/of/a/cluster' was not read: add --hostfile FILE
