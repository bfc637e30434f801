== args
llama-7b --images 2
== stderr ~
images of a model without pictures
== exit
3
