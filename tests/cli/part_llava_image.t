== args
llava-1.5-7b --part all --image 3x448x448
== stderr ~
leave it out: the model's file says how large images are
== exit
3
