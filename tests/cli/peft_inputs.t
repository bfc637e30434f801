What IA3 scales before the product is one of its target modules.
== args
llama-7b --framework hf --peft adapter.json
== file adapter.json
{"peft_type": "IA3", "target_modules": ["k_proj", "v_proj"],
 "feedforward_modules": ["down_proj"]}
== stderr
adapter.json:2:25: error: /feedforward_modules: down_proj of feedforward_modules is not among target_modules
    2 |  "feedforward_modules": ["down_proj"]}
      |                         ^
  hint: PEFT refuses that: add it there, or leave it out here
== exit
3
