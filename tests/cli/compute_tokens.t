Of tokens alone: the model whose optimum they are, by the law that is asked for.
== args
compute --tokens 1.4T --scaling-law besiroglu
== stdout ~
76
on 1.4T tokens
besiroglu
