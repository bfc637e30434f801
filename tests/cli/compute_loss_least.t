A model has a least loss of its own, which is told.
== args
compute --params 7B --target-loss 1.9
== stderr
memplan: --target-loss: no training of 7B parameters reaches a loss of 1.9
  hint: by besiroglu 2.000 is the least there
try 'memplan help compute'
== exit
2
