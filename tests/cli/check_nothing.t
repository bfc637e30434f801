== args
check
== stderr
memplan: 'check' needs MODEL or --cases FILE
try 'memplan help check'
== exit
2
