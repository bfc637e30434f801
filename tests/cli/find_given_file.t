What a launch file gives is named there, and is to be left out there.
== args
llama-7b --find gpus --accelerate a.yaml
== file a.yaml
distributed_type: FSDP
num_processes: 8
== stderr
memplan: --gpus: find gpus: 'gpus' is given, and is what is looked for (a.yaml: num_processes)
  hint: leave it out of the file
== exit
3
