== args
llama-7b --max-memory 40GiB
== stderr
memplan: 'estimate' has no option '--max-memory'
  hint: 'memplan check' has it
try 'memplan help estimate'
== exit
2
