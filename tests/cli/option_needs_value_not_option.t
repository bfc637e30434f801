The next option is not taken for the value.
== args
llama-7b --gpus --zero 3
== stderr
memplan: option '--gpus' needs a value
try 'memplan help estimate'
== exit
2
