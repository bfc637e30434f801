== args
llama-7b --framework hf --peft a.json
== file a.json
{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "rank_pattern": {"layers.0.self_attn.q_proj": 32}}
== stderr
a.json:1:107: error: /rank_pattern/layers.0.self_attn.q_proj: a rank of some layers, or of several modules, is not modelled
    1 | ...pattern": {"layers.0.self_attn.q_proj": 32}}
      |                                            ^
  hint: such as {"q_proj": 16}
== exit
3
