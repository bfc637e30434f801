Experts that PEFT casts with all that bitsandbytes leaves.
== args
mixtral-8x7b --lora-rank 8 --lora-targets q,v --base-dtype int8 --seq-len 512
== stdout ~
  - experts stay in fp32 (--kbit-cast none: 16 bits): bitsandbytes does not pack transformers 5's, one parameter of a layer's (--linear-experts: an nn.Linear each, as in transformers 4)
