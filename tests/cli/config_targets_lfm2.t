LFM2's own names: out_proj is attention's and the convolutions'.
== args
model.json --training-args run.yaml
== file model.json
{"model_type": "lfm2", "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2,
"intermediate_size": 208, "vocab_size": 1234, "num_hidden_layers": 3, "max_position_embeddings":
64, "layer_types": ["conv", "conv", "conv"], "block_multiple_of": 16}
== file run.yaml
adapter: lora
lora_r: 4
lora_target_modules: [w1, w2, w3, q_proj, k_proj, v_proj, out_proj, in_proj]
bf16: true
== stdout ~
15,552 trained
