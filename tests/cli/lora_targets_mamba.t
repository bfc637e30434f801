== args
mamba-370m --lora-rank 8 --lora-targets q
== stderr
memplan: --lora-targets: target modules q not found in the 'mamba' model
  hint: it has in_proj: use some of these
== exit
3
