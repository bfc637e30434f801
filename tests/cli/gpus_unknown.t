== args
gpus h100-80bg
== stderr ~
memplan: 
h100-80gb
== exit
2
