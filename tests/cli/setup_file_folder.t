== args
llama-7b --setup s
== folder s
== stderr
memplan: cannot read 's': it is a folder
== exit
4
