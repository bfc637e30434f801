One of a thing is in the singular.
== args
compute --params 1 --tokens 1 --gpu a100 --mfu 0.4
== stdout ~
1 parameter on 1 token takes
6 x 1 parameter x 1 token
