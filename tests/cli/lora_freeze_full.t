== args
llava-1.5-7b --part all --freeze projector --lora-rank 16 --lora-full-modules projector
== stderr
memplan: --lora-full-modules: lora_full_modules of a part that is frozen
  hint: leave it out of --freeze, or of --lora-full-modules
== exit
3
