== args
gpt2 --format svg
== stderr
memplan: --format: there is no picture of 'estimate'
  hint: 'memplan trace' has one
try 'memplan help estimate'
== exit
2
