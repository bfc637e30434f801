== args
llama-7b --compile=perhaps
== stderr ~
memplan: --compile: 
== exit
2
