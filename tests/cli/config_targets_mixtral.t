Llama's names in Mixtral: PEFT 0.21.2 passes over those that its class has not, and so its experts.
== args
model.json --training-args run.yaml
== file model.json
{"model_type": "mixtral", "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2,
"intermediate_size": 208, "vocab_size": 1234, "num_hidden_layers": 3, "max_position_embeddings":
64, "head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2}
== file run.yaml
adapter: lora
lora_r: 4
lora_target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]
bf16: true
== stdout ~
7,680 trained
'lora_target_modules' gate_proj, up_proj, down_proj of the file has no effect: the model has no such module
