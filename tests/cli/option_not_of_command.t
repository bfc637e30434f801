== args
gpus --zero 3
== stderr
memplan: 'gpus' has no option '--zero'
  hint: 'memplan estimate' has it
try 'memplan help gpus'
== exit
2
