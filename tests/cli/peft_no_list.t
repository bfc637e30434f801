PEFT has no list for every model.
== args
phi-3-mini-4k --framework hf --peft a.json
== file a.json
{"peft_type": "LORA", "r": 8}
== stderr ~
without target_modules PEFT adapts a list of its own, and none is known of model_type 'phi3'
hint: write target_modules, or add --lora-targets q,v
== exit
3
