== args
resnet-50 --lora-rank 8
== stderr ~
memplan: 
adapters of convolutions are not modelled
== exit
3
