Begins and ends as names elsewhere do.
== args
llama-7b --tensor_parallel_size=2
== stderr
memplan: unknown option '--tensor_parallel_size'
  hint: did you mean '--tp'?
try 'memplan help estimate'
== exit
2
