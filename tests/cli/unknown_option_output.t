== args
llama-7b --output report.txt
== stderr
memplan: unknown option '--output'
  hint: results go to standard output: add '> FILE'
try 'memplan help estimate'
== exit
2
