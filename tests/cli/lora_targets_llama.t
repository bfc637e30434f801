== args
llama-7b --lora-rank 8 --lora-targets in_proj
== stderr
memplan: --lora-targets: target modules in_proj not found in the 'llama' model
  hint: it has q, k, v, o, gate, up, down: use some of these, or all-linear
== exit
3
