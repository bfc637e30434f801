Standard input can be read once.
== args
- --setup -
== stdin
{}
== stderr
memplan: cannot read standard input: it was read already
== exit
4
