== args
llama-7b --format yaml
== stderr
memplan: --format: 'yaml' is none of: table json csv markdown svg
try 'memplan help estimate'
== exit
2
