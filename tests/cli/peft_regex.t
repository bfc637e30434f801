== args
llama-7b --framework hf --peft a.json
== file a.json
{"peft_type": "LORA", "r": 8, "target_modules": ".*q_proj"}
== stderr
a.json:1:49: error: /target_modules: '.*q_proj' is no module that is known
    1 | ...ype": "LORA", "r": 8, "target_modules": ".*q_proj"}
      |                                            ^
  hint: such as q_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, c_attn, query_key_value; or all-linear
== exit
3
