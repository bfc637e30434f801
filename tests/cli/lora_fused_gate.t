== args
mixtral-8x7b --lora-rank 8 --lora-targets q,v,gate
== stderr
memplan: --lora-targets: gate and up are one weight of a 'mixtral' model's experts, and PEFT adapts both or none
  hint: name both, or leave both out
== exit
3
