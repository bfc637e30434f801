== args
estimate llama-7b --training-args a.yaml --json
== file a.yaml
lora_rank: 8
use_peft: true
use_dora: true
== stdout ~
    "lora_variant": "dora",
