== args
models llava.json --part all
== file llava.json
{
  "model_type": "llava", "text_config": {"model_type": "llama"},
  "vision_config": {"model_type": "clip_vision_model"},
  "vision_feature_layer": 13
}
== stderr ~
use -13 to 12, which is the last layer's
== exit
3
