Near '--loss', but no loss is meant.
== args
llama-7b --lora
== stderr
memplan: unknown option '--lora'
  hint: did you mean '--lora-rank 16'?
try 'memplan help estimate'
== exit
2
