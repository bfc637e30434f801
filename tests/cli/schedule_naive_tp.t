== args
llama-7b --framework hf --gpus 4 --pp 2 --tp 2
== stderr
memplan: --tp: tp 2 with schedule 'naive': device_map is of one process
  hint: use --tp 1, or --pp 1 without --schedule
== exit
3
