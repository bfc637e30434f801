Empty, it says nothing.
== args
bad.json
== tty
stderr
== env
NO_COLOR=
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
