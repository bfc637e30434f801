Experts as transformers 4 had them.
== args
mixtral-8x7b --lora-rank 8 --lora-targets q,v --base-dtype nf4 --linear-experts --seq-len 512
== stdout ~
    frozen weights            25.31
