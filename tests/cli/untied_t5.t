== args
cat.json --seq-len 128 --gpu h100
== file cat.json
{ "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4,
  "num_layers": 2, "vocab_size": 1000, "relative_attention_num_buckets": 32,
  "tie_word_embeddings": false }
== stdout ~
the head has weights of its own, as the file says and its checkpoint has; transformers 5 ties them all the same
