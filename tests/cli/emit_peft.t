== args
llama-7b --lora-rank 8 --lora-targets q,v,down --layers-to-transform 0,30-31 --rank-pattern q=16 --lora-full-modules head --emit peft
== stdout
{
  "peft_type": "LORA",
  "r": 8,
  "lora_dropout": 0,
  "task_type": "CAUSAL_LM",
  "target_modules": ["q_proj", "v_proj", "down_proj"],
  "layers_to_transform": [0, 30, 31],
  "rank_pattern": {
    "q_proj": 16
  },
  "modules_to_save": ["lm_head"]
}
