OPT's, whose output projection is called out_proj.
== args
model.json --training-args run.yaml
== file model.json
{"model_type": "opt", "hidden_size": 96, "word_embed_proj_dim": 96, "num_attention_heads": 6,
"ffn_dim": 208, "vocab_size": 1234, "num_hidden_layers": 3, "max_position_embeddings": 64}
== file run.yaml
adapter: lora
lora_r: 4
lora_target_modules: [q_proj, v_proj, out_proj, fc1]
bf16: true
== stdout ~
10,560 trained
