Patterns of modules that have no adapter do nothing, which is said.
== args
llama-7b --framework hf --peft adapter.json --fast
== file adapter.json
{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj", "v_proj"],
 "rank_pattern": {"q_proj": 16, "fc1": 4}, "alpha_pattern": {"fc2": 3, "v_proj": 4}}
== stdout ~
llama-7b: 6.74B parameters, 6,291,456 trained (0.0933%), on 1 x a100-80gb
  - 'rank_pattern' fc1 of PEFT's file has no effect: no such module has an adapter
  - 'alpha_pattern' fc2 of PEFT's file has no effect: no such module has an adapter
