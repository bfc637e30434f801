== args
models cat.json --part vision
== file cat.json
{
  "model_type": "gemma3", "vision_config": "siglip",
  "text_config": {"hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4}
}
== stderr ~
'vision_config' must be an object, not a string
== exit
3
