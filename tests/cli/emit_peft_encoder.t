== args
gpt2 --seq-len 512 --peft-type p-tuning --encoder-hidden-size 128 --emit peft
== stdout
{
  "peft_type": "P_TUNING",
  "num_virtual_tokens": 20,
  "task_type": "CAUSAL_LM",
  "encoder_hidden_size": 128
}
== stderr
memplan: note: not in it: --seq-len; the data's collator says it: max_length of TRL's SFTConfig
