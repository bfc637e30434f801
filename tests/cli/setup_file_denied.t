== args
llama-7b --setup s
== denied s
== stderr
memplan: cannot read 's': Permission denied
== exit
4
