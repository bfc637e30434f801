== args
llama-7b --max-gpu-memory 80GiB
== stderr
memplan: unknown option '--max-gpu-memory'
  hint: did you mean '--gpu-memory'?
try 'memplan help estimate'
== exit
2
