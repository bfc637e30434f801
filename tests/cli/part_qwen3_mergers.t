== args
eye.json --part vision
== file eye.json
{
  "model_type": "qwen3_vl", "text_config": {},
  "vision_config": {"out_hidden_size": 4096, "deepstack_visual_indexes": [1, 2, 3, 4, 5, 6, 7, 8, 9]}
}
== stderr ~
name fewer in 'deepstack_visual_indexes'
== exit
3
