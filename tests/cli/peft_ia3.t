== args
llama-7b --framework hf --peft a.json --json
== file a.json
{"peft_type": "IA3", "target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"], "trainable_token_indices": null}
== stdout ~
    "trainable_parameters": 614400
