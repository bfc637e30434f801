== args
llama-7b --json=yes
== stderr
memplan: option '--json' takes no value
try 'memplan help estimate'
== exit
2
