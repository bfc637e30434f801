== args
models eye.json --part vision
== file eye.json
{
  "model_type": "qwen3_vl", "text_config": {},
  "vision_config": {"deepstack_visual_indexes": ["last"]}
}
== stderr ~
/vision_config/deepstack_visual_indexes/0
== exit
3
