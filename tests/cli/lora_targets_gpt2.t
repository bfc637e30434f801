== args
gpt2 --lora-rank 8 --lora-targets gate
== stderr
memplan: --lora-targets: target modules gate not found in the 'gpt2' model
  hint: it has q, k, v, o, up, down: use some of these, or all-linear
== exit
3
