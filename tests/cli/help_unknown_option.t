== args
help micro-bach
== stderr
memplan: no command and no option is called 'micro-bach'
  hint: did you mean 'memplan help micro-batch'?
try 'memplan help help'
== exit
2
