== args
cat.json --seq-len 128 --gpu h100
== file cat.json
{ "model_type": "qwen3_moe", "hidden_size": 256, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512,
  "vocab_size": 1000 }
== stdout ~
not in the file, by default of 'qwen3_moe': num_experts 128, num_experts_per_tok 8, moe_intermediate_size 768
