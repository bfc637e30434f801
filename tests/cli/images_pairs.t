== args
clip-vit-base-patch32 --images 2
== stderr ~
leave images out; --micro-batch counts pairs
== exit
3
