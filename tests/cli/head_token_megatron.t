== args
- --framework megatron
== stdin
{"architectures": ["GPT2ForTokenClassification"], "model_type": "gpt2",
 "n_embd": 256, "n_head": 4, "n_layer": 4, "n_positions": 64, "vocab_size": 2048}
== stderr ~
--implementation: implementation megatron has no head for classes
== exit
3
