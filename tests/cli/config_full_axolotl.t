TRL's and Axolotl's word for it, and Axolotl's for one copy of tied ends.
== args
llama-3.2-1b --training-args run.yaml --json
== file run.yaml
adapter: lora
lora_r: 16
lora_target_modules: [q_proj, v_proj]
lora_modules_to_save: [model.embed_tokens, lm_head]
peft_ensure_weight_tying: true
micro_batch_size: 1
bf16: true
== stdout ~
"parameters": 1500186624,
"trainable_parameters": 264372224
"ensure_weight_tying": true
