== args
models cat.json --as clip
== file cat.json
{
  "model_type": "long_cat", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256
}
== stderr ~
a text part by itself is of type clip_text_model
== exit
3
