== args
mistral-7b-v0.1 --peft-type ia3 --emit peft
== stdout
{
  "peft_type": "IA3",
  "task_type": "CAUSAL_LM",
  "target_modules": ["k_proj", "v_proj", "down_proj"],
  "feedforward_modules": ["down_proj"]
}
