== args
gemma-3-4b --part all --images 3 --seq-len 512
== stderr ~
seq_len 512 is less than the 768 tokens of its images
== exit
3
