== args
qwen.json --part text --fast --json
== file qwen.json
{
  "model_type": "qwen2_5_vl",
  "text_config": {
    "hidden_size": 512, "num_hidden_layers": 2, "vocab_size": 32000,
    "intermediate_size": 1024, "num_attention_heads": 8,
    "num_key_value_heads": 2
  },
  "vision_config": {"depth": 2, "out_hidden_size": 768}
}
== stdout ~
"model_type": "qwen2_5_vl_text"
