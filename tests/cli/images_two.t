== args
llama4.json --part all --images 2 --fast
== file llama4.json
{
  "model_type": "llama4",
  "text_config": {
    "model_type": "llama4_text", "num_hidden_layers": 2, "hidden_size": 1024,
    "num_attention_heads": 8, "vocab_size": 32000
  },
  "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 1408,
    "vision_output_dim": 4096}
}
== stdout ~
2 images a sequence, each 256 of its tokens
