A failed write of help is a failure.
== args
help
== full
== stderr
memplan: cannot write to standard output: No space left on device
== exit
4
