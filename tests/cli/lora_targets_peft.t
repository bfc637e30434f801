== args
llama-7b --lora-rank 16 --lora-targets q_proj
== stderr
memplan: --lora-targets: unknown lora_targets 'q_proj'
  hint: did you mean 'q'?
try 'memplan help estimate'
== exit
2
