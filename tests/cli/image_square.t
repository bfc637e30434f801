== args
vit-large-patch16-224 --image 3x224x192
== stderr ~
this model takes square images
== exit
3
