== args
cat.json --seq-len 128 --gpu h100
== file cat.json
{ "model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2,
  "expansion_ratio": 4, "max_seq_len": 128, "vocab_size": 1000,
  "no_bias": false }
== stdout ~
biases, as 'no_bias' false means to llm-foundry's code; transformers' class builds none
