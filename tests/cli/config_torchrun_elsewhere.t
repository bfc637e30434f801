The file that the script names is not here: that is said, and the rest read.
== args
llama-7b --torchrun train.sh
== file train.sh
deepspeed --num_gpus 4 train.py --deepspeed ds.json
== stdout ~
  - 'ds.json' was not read: add --deepspeed FILE
