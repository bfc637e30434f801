== args
compute --params 1 --target-loss 90
== stderr
memplan: --target-loss: no training of 1 parameter reaches a loss of 90
  hint: no loss of 100 is reached there: say more of 'params' or 'tokens'
try 'memplan help compute'
== exit
2
