== args
weights
== folder weights
== stderr
memplan: cannot read 'weights': it is a folder
== exit
4
