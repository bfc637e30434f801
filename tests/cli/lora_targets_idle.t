== args
estimate llama-7b --lora-rank 8 --lora-targets q,x_proj,in_proj
== stdout ~
  - 'lora_targets' in_proj, x_proj has no effect: the model has no such module
