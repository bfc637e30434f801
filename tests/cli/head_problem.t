== args
-
== stdin
{"architectures": ["Qwen3ForSequenceClassification"], "model_type": "qwen3",
 "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 768,
 "num_hidden_layers": 4, "vocab_size": 2048, "problem_type": "ranking"}
== stderr ~
<stdin>:3:62: error: /problem_type: 'problem_type' is not known
hint: known: single_label_classification, regression, multi_label_classification
== exit
3
