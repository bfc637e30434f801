== args
models llava.json --import --part all --json
== file llava.json
{
  "model_type": "llava", "text_config": {"model_type": "llama"},
  "vision_config": {"model_type": "clip_vision_model"}
}
== stdout ~
"vision_feature_layer": -2
