== args
estimate llama-7b --training-args a.yaml --json
== file a.yaml
finetuning_type: freeze
freeze_trainable_layers: 3
freeze_extra_modules: norm,lm_head
== stdout ~
    "trainable_parameters": 738226176
