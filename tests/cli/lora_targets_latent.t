== args
minicpm3-4b --lora-rank 8 --lora-targets q,v
== stderr
memplan: --lora-targets: target modules q, v not found in the 'minicpm3' model
  hint: it has o, gate, up, down, q_a, q_b, kv_a, kv_b: use some of these, or all-linear
== exit
3
