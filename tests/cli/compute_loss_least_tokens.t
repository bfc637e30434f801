So have tokens, and fewer of them that differ.
== args
compute --tokens 1T --unique-tokens 1B --target-loss 1.9
== stderr
memplan: --target-loss: no training on 1T tokens reaches a loss of 1.9
  hint: by besiroglu 2.790 is the least there, of so many unique tokens
try 'memplan help compute'
== exit
2
