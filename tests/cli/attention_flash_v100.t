== args
phi-3-small-8k --gpu v100-32gb
== stderr
memplan: --attention: attention 'flash' on v100-32gb, which FlashAttention does not support
  hint: choose another --gpu, Ampere or newer: this family has no other kernel
== exit
3
