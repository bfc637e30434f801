On a terminal words are broken before its last column.
== args
llama-7b --gpus 8 --tp 2 --framework megatron --expert-parallel 3
== tty
stderr 60
== stderr
memplan: unknown option '--expert-parallel'
  hint: did you mean '--ep'?
try 'memplan help estimate'
== exit
2
