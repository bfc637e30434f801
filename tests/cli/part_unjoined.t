== args
models cat.json --part all
== file cat.json
{
  "model_type": "cat_vl",
  "text_config": {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256
  },
  "vision_config": {"model_type": "clip_vision_model"}
}
== stderr ~
what joins the parts of a 'cat_vl' is not known: if it is a projector as LLaVA's, --as llava reads it so
== exit
3
