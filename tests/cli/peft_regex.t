PEFT takes a string for a regular expression.
== args
llama-7b --framework hf --peft a.json
== file a.json
{"peft_type": "LORA", "r": 8, "target_modules": ".*q_proj"}
== stderr ~
/target_modules: a string is a regular expression to PEFT, which is not read
hint: write a list, such as ["q_proj", "v_proj"], or "all-linear"
== exit
3
