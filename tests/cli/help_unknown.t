== args
help estimat
== stderr
memplan: no command and no option is called 'estimat'
  hint: did you mean 'memplan help estimate'?
try 'memplan help help'
== exit
2
