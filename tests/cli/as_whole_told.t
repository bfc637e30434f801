== args
models mystery.json
== file mystery.json
{
  "model_type": "mystery", "mm_tokens_per_image": 256,
  "text_config": {"model_type": "mystery_text", "num_hidden_layers": 2},
  "vision_config": {"model_type": "mystery_vision"}
}
== stderr ~
'mm_tokens_per_image' is a key of 'gemma3' files: if the rest is, --as gemma3 reads it so
== exit
3
