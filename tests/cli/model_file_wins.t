A file hides the catalogue's model; that is said.
== args
llama-7b
== file llama-7b
{
  "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
  "max_position_embeddings": 128
}
== stdout ~
== stderr ~
memplan: note: reading the file 'llama-7b', not the catalogue's model
