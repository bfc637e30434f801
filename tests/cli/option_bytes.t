== args
llama-7b --gpu-memory 24
== stderr
memplan: --gpu-memory: 'gpu_memory' is 24, out of range
  hint: these are bytes: write 24GiB
try 'memplan help estimate'
== exit
2
