An option that is none, with one that is near.
== args
llama-7b --gpuss 64
== stderr
memplan: unknown option '--gpuss'
  hint: did you mean '--gpus'?
try 'memplan help estimate'
== exit
2
