device_map is one process: torchrun would start one for each GPU.
== args
llama-7b --framework hf --schedule naive --gpus 4 --emit torchrun
== stderr
memplan: --schedule: schedule 'naive' has no word in a file of torchrun
  hint: one process needs no launcher: python train.py, with device_map="auto"
== exit
3
