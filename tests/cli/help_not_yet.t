== args
help plan
== stderr
memplan: 'plan' is not there yet in version 0.1.0
  hint: 'memplan help' lists the commands that are
== exit
2
