The message names the option.
== args
llama-7b --gpus many
== stderr ~
memplan: --gpus: 
try 'memplan help estimate'
== exit
2
