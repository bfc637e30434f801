== args
llama-7b --by zero
== stderr
memplan: 'estimate' has no option '--by'
  hint: 'memplan score' has it
try 'memplan help estimate'
== exit
2
