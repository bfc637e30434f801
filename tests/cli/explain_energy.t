Energy with its factors.
== args
explain llama-7b --gpu a100-80gb --gpus 64 --zero 3 --availability 0.9
== stdout ~
energy
arXiv:2506.14551
