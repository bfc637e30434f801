Tokens that no model has as its optimum, by the law that is asked for.
== args
compute --tokens 100T --scaling-law kaplan
== stderr ~
memplan: --tokens: 1e+14 tokens are no model's optimum by this law
say how large the model is: --params
== exit
2
