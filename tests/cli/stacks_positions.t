== args
bart-large --decoder-seq-len 2000
== stderr ~
memplan: 
beyond the model's 1024 learned positions
== exit
3
