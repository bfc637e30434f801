The same of an estimate.
== args
dino.json
== file dino.json
{
  "model_type": "grounding-dino",
  "text_config": {
    "model_type": "bert", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256
  },
  "backbone_config": {"model_type": "swin"}
}
== stdout ~
the text part alone: nothing else of a 'grounding-dino' is read
