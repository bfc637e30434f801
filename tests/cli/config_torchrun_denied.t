The file that the script names is here and cannot be read: no note for that.
== args
llama-7b --torchrun train.sh
== file train.sh
deepspeed --num_gpus 4 train.py --deepspeed ds.json
== denied ds.json
== stderr
memplan: cannot read 'ds.json': Permission denied
== exit
4
