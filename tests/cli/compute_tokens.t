Of tokens alone: the model whose optimum they are, by the law that is asked for.
== args
compute --tokens 1.4T --scaling-law besiroglu
== stdout ~
76.3B parameters on 1.4T tokens take
6 x 76.3B parameters x 1.4T tokens
loss 1.971 by besiroglu: 76.3B parameters on 1.4T tokens reach it
