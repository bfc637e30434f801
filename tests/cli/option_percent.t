== args
llama-7b --mfu 40
== stderr
memplan: --mfu: 'mfu' is 40, out of range
  hint: use 0.0001 to 1, or 40%
try 'memplan help estimate'
== exit
2
