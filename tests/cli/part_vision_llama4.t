== args
llama4.json --part vision --micro-batch 4 --fast
== file llama4.json
{
  "model_type": "llama4",
  "text_config": {
    "model_type": "llama4_text", "num_hidden_layers": 2, "hidden_size": 1024,
    "num_attention_heads": 8, "vocab_size": 32000
  },
  "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 1408}
}
== stdout ~
a part without a head: the loss is the mean of what it hands on
