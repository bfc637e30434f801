== args
gpus --zero 3
== stderr
memplan: 'gpus' has no option '--zero'
try 'memplan help gpus'
== exit
2
