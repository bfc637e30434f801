== args
gpt2 --seq-len 1024 --lora-rank 8 --recompute full --length-mean 600 --length-std 400
== stdout ~
1000 samples of different lengths (--samples)
samples beyond 1024 tokens are cut (--too-long drop leaves them out)
what is reserved is the median of 15 orders
