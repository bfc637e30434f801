An engine is no framework, and its nearest name another one.
== args
llama-2-7b --framework fsdp2 --gpus 4
== stderr
memplan: --framework: unknown framework 'fsdp2'
  hint: use --framework fsdp --engine fsdp2
try 'memplan help estimate'
== exit
2
