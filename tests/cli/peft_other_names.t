A file that was made for GPT-2.
== args
llama-7b --peft a.json
== file a.json
{"peft_type": "LORA", "r": 16, "target_modules": ["c_attn", "c_proj"]}
== stderr ~
target modules c_attn, c_proj not found in the 'llama' model
hint: it has q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj: use some of these, or "all-linear"
== exit
3
