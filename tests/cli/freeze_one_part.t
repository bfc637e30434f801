== args
llama-7b --freeze text
== stderr
memplan: --freeze: freeze of a model that is one part
  hint: use embed, norm or head; adapters over frozen weights are --lora-rank 16
== exit
3
