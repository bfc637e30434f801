A path that is not there, a name that is in the catalogue.
== args
models/llama-7b.json
== stderr
memplan: no such file: 'models/llama-7b.json'
  hint: the catalogue has 'llama-7b'
== exit
3
