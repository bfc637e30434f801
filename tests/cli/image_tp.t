== args
resnet-50 --tp 2
== stderr ~
memplan: 
tp 2 of convolutions is not modelled
== exit
3
