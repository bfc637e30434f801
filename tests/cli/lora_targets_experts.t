== args
gpt-oss-20b --lora-rank 8 --lora-targets gate,up
== stderr
memplan: --lora-targets: target modules gate, up not found in the 'gpt_oss' model, whose experts are parameters, no modules
  hint: it has q, k, v, o: use some of these, or all-linear
== exit
3
