== args
score
== stderr
memplan: 'score' needs a FILE of measured runs, or '-'
try 'memplan help score'
== exit
2
