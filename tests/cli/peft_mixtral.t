Experts by the names that their modules had, which PEFT 0.21.2 finds as parameters.
== args
model.json --framework hf --peft adapter_config.json
== file adapter_config.json
{"peft_type": "LORA", "r": 4, "target_modules": ["q_proj", "v_proj", "w1", "w2", "w3"]}
== file model.json
{"model_type": "mixtral", "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2,
"intermediate_size": 208, "vocab_size": 1234, "num_hidden_layers": 3, "max_position_embeddings":
64, "head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2}
== stdout ~
83,520 trained
