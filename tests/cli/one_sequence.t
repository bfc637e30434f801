A sequence of one token.
== args
gpt2 --seq-len 1 --tokens 1
== stdout ~
sequences of 1 token, 1 a pass
training on 1 token
1 token; 1 step
