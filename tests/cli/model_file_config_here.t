A config.json in "." is not a model called ".".
== args
./config.json
== file ./config.json
{
  "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
  "max_position_embeddings": 128
}
== stdout ~
config: 
