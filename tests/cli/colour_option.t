The option is above the environment.
== args
bad.json --color always
== env
NO_COLOR=1
== file bad.json
{
  "memplan": 1,
  "model_type": "llama",
  "hidden_size": "64",
  "intermediate_size": 128,
  "num_hidden_layers": -2,
  "num_attention_heads": 4, "vocab_size": 256
}
== stderr ~
bad.json:4:18: [1;31merror:[0m /hidden_size
== exit
3
