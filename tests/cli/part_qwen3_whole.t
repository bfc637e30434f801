== args
qwen3-vl-8b --part all --image 3x1024x1024 --images 2 --seq-len 4096 --fast
== stdout ~
2 images a sequence, each 1024 of its tokens
