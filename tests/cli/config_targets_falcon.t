Falcon's attention, whose output projection is called dense.
== args
model.json --training-args run.yaml
== file model.json
{"model_type": "falcon", "hidden_size": 96, "num_attention_heads": 6, "ffn_hidden_size": 208,
"vocab_size": 1234, "num_hidden_layers": 3, "max_position_embeddings": 64, "multi_query": true,
"parallel_attn": true, "new_decoder_architecture": false, "bias": false, "alibi": false}
== file run.yaml
adapter: lora
lora_r: 4
lora_target_modules: [query_key_value, dense]
bf16: true
== stdout ~
4,992 trained
