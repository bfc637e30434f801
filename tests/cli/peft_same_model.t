Prefixes have the width of keys and values: 8 heads of 128.
== args
llama-3-8b --peft adapter_config.json --json
== file adapter_config.json
{"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 8, "num_layers": 32, "num_attention_heads": 8, "token_dim": 1024}
== stdout ~
"peft_type": "prefix-tuning"
