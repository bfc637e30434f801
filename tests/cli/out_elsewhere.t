== args
llama-7b --out mine.json
== stderr
memplan: 'estimate' has no option '--out'
  hint: results go to standard output: add '> FILE'
try 'memplan help estimate'
== exit
2
