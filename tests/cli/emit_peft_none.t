== args
llama-7b --emit peft
== stderr
memplan: --lora-rank: without adapters there is no adapter_config.json
  hint: add --lora-rank 16, or ask for another program's file
== exit
3
