A mistyped command looks like a model.
== args
explian llama-7b
== stderr
memplan: one operand too many: 'llama-7b'
  hint: did you mean 'memplan explain'?
try 'memplan help estimate'
== exit
2
