== args
llama-7b -x
== stderr
memplan: unknown option '-x'
  hint: options are written out, such as --gpus; of one letter there are -h -V -q
try 'memplan help estimate'
== exit
2
