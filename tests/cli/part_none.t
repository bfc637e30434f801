== args
llama-7b --part vision
== stderr ~
there is no part 'vision' of this model
== exit
3
