What another program calls it.
== args
llama-7b --batch-size 4
== stderr
memplan: unknown option '--batch-size'
  hint: did you mean '--micro-batch'?
try 'memplan help estimate'
== exit
2
