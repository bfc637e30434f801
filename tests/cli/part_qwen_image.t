== args
qwen2.5-vl-3b --part vision --image 3x450x450
== stderr ~
use sides of 476, or another multiple of 28
== exit
3
