Two dashes are meant.
== args
llama-7b -zero 3
== stderr
memplan: unknown option '-zero'
  hint: did you mean '--zero'?
try 'memplan help estimate'
== exit
2
