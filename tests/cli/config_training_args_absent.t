== args
llama-7b --gpus 8 --training-args run/args.json
== file run/args.json
{"deepspeed": "ds.json"}
== stderr
memplan: cannot read 'run/ds.json': no such file
  hint: 'run/args.json' names it: it is looked for beside that file and where memplan starts; start it in the folder that the name is of, or add --deepspeed FILE
== exit
4
