== args
llama-7b --zero three
== stderr
memplan: --zero: 'zero' takes a whole number, not 'three'
  hint: use 0 to 3
try 'memplan help estimate'
== exit
2
