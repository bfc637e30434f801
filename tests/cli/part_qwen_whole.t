== args
qwen2.5-vl-7b --part all --image 3x448x448 --images 3 --seq-len 2048 --fast
== stdout ~
3 images a sequence, each 256 of its tokens
