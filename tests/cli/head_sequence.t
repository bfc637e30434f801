== args
- --micro-batch 2
== stdin
{"architectures": ["LlamaForSequenceClassification"], "model_type": "llama",
 "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 768,
 "num_hidden_layers": 4, "vocab_size": 2048, "num_labels": 3}
== stdout ~
3.94M parameters
