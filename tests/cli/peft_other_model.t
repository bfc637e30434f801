Prompts that were made for another model.
== args
llama-7b --peft adapter_config.json
== file adapter_config.json
{"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 8, "num_layers": 24, "num_attention_heads": 16, "token_dim": 2048}
== stderr
memplan: --peft-type: 'num_layers' of PEFT's file is 24, this model's is 32 (adapter_config.json: peft_type)
  hint: give the model that the file was made for, or leave 'num_layers' out: PEFT fills it in
memplan: --peft-type: 'num_attention_heads' of PEFT's file is 16, this model's is 32 (adapter_config.json: peft_type)
  hint: give the model that the file was made for, or leave 'num_attention_heads' out: PEFT fills it in
memplan: --peft-type: 'token_dim' of PEFT's file is 2048, this model's is 4096 (adapter_config.json: peft_type)
  hint: give the model that the file was made for, or leave 'token_dim' out: PEFT fills it in
== exit
3
