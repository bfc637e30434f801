== args
llama-7b --framework hf --peft a.json
== file a.json
{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "layer_replication": [],
 "trainable_token_indices": [3],
 "exclude_modules": ["layers.0"]}
== stderr ~
trainable_token_indices is not modelled: each forward copies the table of words, and a tied head keeps it
exclude_modules is not modelled: modules without adapters
== exit
3
