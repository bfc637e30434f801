== args
models llava.json --part all
== file llava.json
{
  "model_type": "llava", "text_config": {"model_type": "llama"},
  "vision_config": {"model_type": "clip_vision_model"},
  "vision_feature_select_strategy": "patch"
}
== stderr ~
'vision_feature_select_strategy' must be "default" or "full"
== exit
3
