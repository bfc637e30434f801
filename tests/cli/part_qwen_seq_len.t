== args
qwen2-vl-2b --part all --image 3x1120x1120 --seq-len 1024
== stderr ~
seq_len 1024 is less than the 1600 tokens of an image
== exit
3
