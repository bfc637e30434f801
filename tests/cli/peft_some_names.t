PEFT passes over names that the model has not, where it has others.
== args
llama-7b --fast --peft a.json
== file a.json
{"peft_type": "LORA", "r": 16, "target_modules": ["q_proj", "c_attn"]}
== stdout ~
'target_modules' c_attn of the file has no effect: the model has no such module
