== args
llava.json --part all --seq-len 512
== file llava.json
{
  "model_type": "llava", "text_config": {"model_type": "llama"},
  "vision_config": {"model_type": "clip_vision_model"}
}
== stderr ~
the memory of all parts of a 'llava' model at once is not modelled
== exit
3
