== args
llama-7b --zero 3 --gpus 8 --lengths 100,200,300 --find micro_batch
== stderr
memplan: --lengths: find micro_batch: samples of different lengths are not modelled there
  hint: leave 'lengths' out, and estimate what is found with it
== exit
3
