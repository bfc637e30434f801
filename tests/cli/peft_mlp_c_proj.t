The projection of GPT-2's MLP alone: a name of two parts ends one module.
== args
gpt2 --framework hf --peft adapter_config.json
== file adapter_config.json
{"peft_type": "LORA", "r": 8, "target_modules": ["mlp.c_proj"]}
== stdout ~
gpt2: 125M parameters, 368,640 trained (0.2954%), on 1 x a100-80gb
