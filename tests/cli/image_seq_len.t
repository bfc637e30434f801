== args
vit-large-patch16-224 --seq-len 100
== stderr ~
memplan: 
each of which makes 197
== exit
3
