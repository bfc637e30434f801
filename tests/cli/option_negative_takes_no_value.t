== args
llama-7b --no-compile=no
== stderr
memplan: option '--no-compile' takes no value
try 'memplan help estimate'
== exit
2
