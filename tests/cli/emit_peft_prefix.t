== args
llama-7b --peft-type prefix-tuning --num-virtual-tokens 30 --prefix-projection true --encoder-hidden-size 512 --emit peft
== stdout
{
  "peft_type": "PREFIX_TUNING",
  "num_virtual_tokens": 30,
  "prefix_projection": true,
  "task_type": "CAUSAL_LM",
  "encoder_hidden_size": 512
}
