PEFT's own list of modules, where the file names none.
== args
llama-2-7b --framework hf --peft a.json --json
== file a.json
{"peft_type": "LORA", "r": 8, "target_modules": null}
== stdout ~
    "trainable_parameters": 4194304
adapters on q, v, PEFT's list (--lora-targets)
