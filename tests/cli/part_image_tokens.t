== args
gemma-3-4b --part all --seq-len 128
== stderr ~
seq_len 128 is less than the 256 tokens of an image
== exit
3
