One of a thing is in the singular.
== args
compute --params 1 --tokens 1 --gpu a100 --mfu 0.4
== stdout ~
1 parameter on 1 token takes
6 x 1 parameter x 1 token
== args
compute gpt2 --tokens 1 --days 1
== stdout ~
124M parameters on 1 token take
1,024 tokens; 1 step
of 1 number looked at
== args
gpt2 --seq-len 1 --tokens 1
== stdout ~
sequences of 1 token, 1 a pass
training on 1 token
1 token; 1 step
