Experts are one parameter, which bitsandbytes does not see.
== args
mixtral-8x7b --lora-rank 8 --lora-targets q,v --base-dtype nf4 --lora-dtype bf16 --seq-len 512
== stdout ~
    frozen weights            85.19
  - experts stay in bf16: bitsandbytes does not pack transformers 5's, one parameter of a layer's (--linear-experts: an nn.Linear each, as in transformers 4)
