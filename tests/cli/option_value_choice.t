== args
llama-7b --optimizer adamm
== stderr ~
memplan: --optimizer: 
adamw
== exit
2
