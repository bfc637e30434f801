== args
models --import cat.json --as llama
== file cat.json
{
  "model_type": "long_cat", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256
}
== stdout ~
num_key_value_heads    4
