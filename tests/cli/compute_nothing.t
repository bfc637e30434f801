Without a model, params or budget there is nothing to compute.
== args
compute
== stderr ~
memplan: 
== exit
2
