== args
phi-3.5-moe --lora-rank 8
== stderr
memplan: --lora-targets: PEFT's all-linear adapts the router of a 'phimoe' model, which then fails
  hint: use --lora-targets q,k,v,o
== exit
3
