== args
zero=3 llama-7b
== stderr
memplan: one operand too many: 'llama-7b'
  hint: did you mean '--zero=3'?
try 'memplan help estimate'
== exit
2
