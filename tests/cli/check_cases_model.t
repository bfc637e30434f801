== args
check llama-7b --cases c.json
== stderr
memplan: --cases takes no MODEL beside it: 'llama-7b'
  hint: write the model into the file
try 'memplan help check'
== exit
2
