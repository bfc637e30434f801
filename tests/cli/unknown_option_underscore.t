The key's spelling instead of the option's.
== args
llama-7b --micro_batch 4
== stderr
memplan: unknown option '--micro_batch'
  hint: did you mean '--micro-batch'?
try 'memplan help estimate'
== exit
2
