== args
llama4.json --part vision
== file llama4.json
{
  "model_type": "llama4",
  "text_config": {
    "model_type": "llama4_text", "num_hidden_layers": 2, "hidden_size": 1024,
    "num_attention_heads": 8, "vocab_size": 32000
  },
  "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 768}
}
== stderr ~
'intermediate_size' (5632) of Llama 4's vision part is not 'hidden_size' / 'pixel_shuffle_ratio' squared (3072)
== exit
3
