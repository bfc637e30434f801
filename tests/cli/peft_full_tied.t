What PEFT prints of copies of tied words and head: trainable%: 29.8970.
== args
llama-3.2-1b --framework hf --peft a.json --fast
== file a.json
{"peft_type": "LORA", "r": 16, "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}
== stdout ~
llama-3.2-1b: 1.76B parameters, 527,040,512 trained (29.8970%), on 1 x a100-80gb
