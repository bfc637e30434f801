== args
check --zero 3 --cases c.json
== stderr
memplan: --cases takes no '--zero' beside it
  hint: write it into the file
try 'memplan help check'
== exit
2
