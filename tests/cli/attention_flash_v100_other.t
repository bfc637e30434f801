== args
llama-7b --gpu v100-32gb --attention flash
== stderr
memplan: --attention: attention 'flash' on v100-32gb, which FlashAttention does not support
  hint: use --attention sdpa
== exit
3
