An option without its dashes.
== args
llama-7b gpus 8
== stderr
memplan: one operand too many: 'gpus'
  hint: did you mean '--gpus'?
try 'memplan help estimate'
== exit
2
