PEFT adapts the head, too.
== args
llama-7b --peft a.json
== file a.json
{"peft_type": "LORA", "r": 16, "target_modules": ["q_proj", "lm_head"]}
== stderr ~
/target_modules/1: adapters of 'lm_head' are not modelled
hint: leave it out, or use "modules_to_save": ["lm_head"], which trains all of it
== exit
3
