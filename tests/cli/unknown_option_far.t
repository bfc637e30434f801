An option that is like no other.
== args
llama-7b --frobnicate
== stderr
memplan: unknown option '--frobnicate'
try 'memplan help estimate'
== exit
2
