== args
gemma-3-4b --part all --seq-len 512
== stdout ~
one image a sequence, 256 of its tokens
