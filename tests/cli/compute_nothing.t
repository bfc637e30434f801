Without a model, params, tokens, budget or loss there is nothing to compute.
== args
compute
== stderr ~
memplan: 
== exit
2
