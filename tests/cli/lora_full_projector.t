== args
gemma-3-4b --lora-rank 16 --lora-full-modules projector
== stderr
memplan: --lora-full-modules: lora_full_modules projector of a model that is one part
  hint: add --part all, or leave projector out
== exit
3
