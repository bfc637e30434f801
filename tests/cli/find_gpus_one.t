One GPU is one, and no layer is none.
== args
gpt2 --find gpus
== stdout ~
gpt2 on a100-80gb: it fits on 1 GPU
candidates are all numbers of GPUs up to a node of 8, multiples of 8 beyond
