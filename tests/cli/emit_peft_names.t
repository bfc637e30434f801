== args
gpt2 --lora-rank 8 --lora-targets q --emit peft
== stderr
memplan: --lora-targets: lora_targets 'q' has no word in a file of peft
  hint: use --lora-targets all-linear: the class has other names for its modules
== exit
3
