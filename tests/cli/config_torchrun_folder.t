A folder beside the script has the name of the file that it names.
== args
llama-7b --torchrun run/train.sh
== file run/train.sh
deepspeed --num_gpus 4 train.py --deepspeed ds.json
== folder run/ds.json
== stderr
memplan: cannot read 'run/ds.json': it is a folder
== exit
4
