== args
mixtral-8x7b --lora-rank 8 --lora-dropout 0.05
== stderr
memplan: --lora-dropout: PEFT has no dropout for adapters of fused experts
  hint: use --lora-dropout 0, or --lora-targets q,k,v,o
== exit
3
