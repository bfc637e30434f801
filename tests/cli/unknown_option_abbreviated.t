Abbreviations are refused: they break when an option is added.
== args
llama-7b --micro 4
== stderr
memplan: unknown option '--micro'
  hint: did you mean '--micro-batch'?
try 'memplan help estimate'
== exit
2
