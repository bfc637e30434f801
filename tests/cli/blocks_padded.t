== args
phi-3-small-8k --seq-len 1000
== stderr
memplan: --seq-len: a 'phi3small' model pads sequences to 64 tokens, which is not modelled
  hint: use a multiple of 64
== exit
3
