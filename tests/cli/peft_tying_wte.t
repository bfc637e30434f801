PEFT does not tie copies of GPT-2's wte; the option is not advised again.
== args
gpt2 --framework hf --peft a.json
== file a.json
{"peft_type": "LORA", "r": 16, "target_modules": ["c_attn"], "modules_to_save": ["wte"], "ensure_weight_tying": true}
== stdout ~
  - PEFT trains copies of the words' table, and unties the head
  - a.json: 'ensure_weight_tying' has no effect: PEFT knows embed_tokens and lm_head alone
