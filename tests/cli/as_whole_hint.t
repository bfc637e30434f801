== args
models cat.json
== file cat.json
{
  "model_type": "cat_vl",
  "text_config": {"num_hidden_layers": 2, "hidden_size": 512},
  "vision_config": {"model_type": "clip_vision_model"}
}
== stderr ~
--as llava reads it so
== exit
3
