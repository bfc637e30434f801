An untied head's copy and its original both count: trainable%: 2.0277.
== args
llama-7b --framework hf --peft a.json --json
== file a.json
{"peft_type": "LORA", "r": 16, "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head"]}
== stdout ~
"parameters": 6877876224,
"active_parameters": 6738415616,
"trainable_parameters": 139460608
