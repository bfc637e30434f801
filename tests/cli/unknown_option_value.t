A habit that is an option and its value here.
== args
llama-7b --fsdp
== stderr
memplan: unknown option '--fsdp'
  hint: did you mean '--framework fsdp'?
try 'memplan help estimate'
== exit
2
