== args
llama-7b --gpus -3
== stderr ~
memplan: --gpus: 
== exit
2
