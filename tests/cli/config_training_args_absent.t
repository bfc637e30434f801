== args
llama-7b --gpus 8 --training-args run/args.json
== file run/args.json
{"deepspeed": "ds.json"}
== stderr
memplan: cannot read 'run/ds.json': no such file
== exit
4
