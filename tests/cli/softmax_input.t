== file c.json
{"model_type": "bert", "hidden_size": 96, "num_attention_heads": 6, "intermediate_size": 208, "vocab_size": 1234, "num_hidden_layers": 3, "max_position_embeddings": 64, "type_vocab_size": 2, "hidden_act": "gelu", "architectures": ["BertForMaskedLM"]}
== args
c.json --framework hf --precision fp32 --attention eager --dropout 0 --micro-batch 3 --seq-len 40 --softmax-input --attention-mask model --json
== stdout ~
"saved_layers": 2402304,
