== args
clip-vit-base-patch32 --seq-len 77
== stderr ~
the memory of all parts of a 'clip' model at once is not modelled
== exit
3
