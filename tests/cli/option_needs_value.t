At the end of the line.
== args
llama-7b --gpus
== stderr
memplan: option '--gpus' needs a value
try 'memplan help estimate'
== exit
2
