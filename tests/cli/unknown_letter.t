== args
llama-7b -x
== stderr
memplan: unknown option '-x'
try 'memplan help estimate'
== exit
2
