== args
cat.json --as llava --part all --seq-len 512 --fast
== file cat.json
{
  "model_type": "cat_vl",
  "text_config": {"num_hidden_layers": 2, "hidden_size": 512},
  "vision_config": {"model_type": "clip_vision_model"}
}
== stdout ~
the file is read as a 'llava' model, which it does not say (--as)
