No micro_batch divides what dp does not.
== args
llama-7b --gpus 8 --zero 3 --gpu h100-80gb --global-batch 36 --find micro_batch
== stderr
memplan: --global-batch: global_batch 36 is not a multiple of micro_batch x dp = 8
  hint: use 32 or 40
== exit
3
