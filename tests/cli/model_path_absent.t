== args
models/none/x.json
== stderr
memplan: no such file: 'models/none/x.json'
== exit
3
