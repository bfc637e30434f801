Models are read from beside the file.
== args
check --cases ci/cases.json
== file ci/cases.json
{"cases": [
  {"name": "one", "model": "llama-7b", "setup": {"zero": 3, "gpus": 64},
   "assert": {"max_memory": "70GiB"}},
  {"name": "two", "model": "m.json"}
]}
== file ci/m.json
{
  "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
  "max_position_embeddings": 128
}
== stdout ~
ok
one
two
