== args
llama-7b --verbose
== stderr
memplan: unknown option '--verbose'
  hint: 'memplan explain MODEL' shows where each number comes from
try 'memplan help estimate'
== exit
2
