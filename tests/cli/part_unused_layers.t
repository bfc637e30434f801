== args
llava.json --part all --seq-len 1024 --fast
== file llava.json
{
  "model_type": "llava", "text_config": {"model_type": "llama"},
  "vision_config": {"model_type": "clip_vision_model"},
  "vision_feature_layer": -3
}
== stdout ~
the vision part's last 2 layers run in vain
