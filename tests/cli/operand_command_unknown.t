What is no command is taken for the model.
== args
optimise llama-7b
== stderr
memplan: one operand too many: 'llama-7b'
  hint: 'optimise' is taken for the MODEL; 'memplan help' lists the commands
try 'memplan help estimate'
== exit
2
