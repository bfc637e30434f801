== args
llava.json --part all --seq-len 1024 --fast
== file llava.json
{
  "model_type": "llava", "text_config": {"model_type": "llama"},
  "vision_config": {"model_type": "clip_vision_model"}
}
== stdout ~
one image a sequence, 49 of its tokens (--images)
