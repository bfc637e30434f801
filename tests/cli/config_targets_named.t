Modules that PEFT finds by the ends of their names, as in its own file.
== args
gpt2 --training-args run.yaml
== file run.yaml
adapter: lora
lora_r: 8
lora_target_modules: [h.0.mlp.c_proj, q_proj]
bf16: true
== stdout ~
gpt2: 125M parameters, 368,640 trained (0.2954%), on 1 x a100-80gb
'lora_target_modules' q_proj of the file has no effect: the model has no such module
