== args
lama-7b
== stderr ~
memplan: no file and no model is called 'lama-7b'
llama-7b
== exit
3
