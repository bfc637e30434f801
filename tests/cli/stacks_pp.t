== args
t5-base --framework megatron --pp 2 --gpus 2
== stderr ~
memplan: 
pp 2 of an encoder-decoder is not modelled
== exit
3
