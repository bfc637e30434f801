== args
models cat.json --as llama --part vision
== file cat.json
{
  "model_type": "long_cat", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256
}
== stderr ~
--as reads one model of a file; leave it out for parts
== exit
3
