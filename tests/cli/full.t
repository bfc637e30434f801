== args
llama-7b
== full
== stderr
memplan: cannot write to standard output: No space left on device
== exit
4
