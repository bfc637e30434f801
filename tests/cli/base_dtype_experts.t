Experts that bitsandbytes would not see are said to be quantised.
== args
mixtral-8x7b --lora-rank 8 --lora-targets q,v --base-dtype nf4 --seq-len 512
== stdout ~
    frozen weights            25.31
  - experts are quantised too, as with transformers 4 and Unsloth: bitsandbytes leaves those of transformers 5, one parameter for all, in 16 bits
