A speed that is too small has lost its prefix.
== args
llama-7b --peak-flops 312
== stderr
memplan: --peak-flops: 'peak_flops' is 312, out of range
  hint: this is FLOP a second: such as 312e12
try 'memplan help estimate'
== exit
2
