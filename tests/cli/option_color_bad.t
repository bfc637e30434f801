== args
llama-7b --color maybe
== stderr
memplan: --color: 'maybe' is none of: auto always never
try 'memplan help estimate'
== exit
2
