== args
vit-large-patch16-224 --images 2
== stderr ~
leave it out; --micro-batch counts images
== exit
3
