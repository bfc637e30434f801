== args
vit-large-patch16-224 --gpu a100-80gb --seq-len 3000
== stderr
memplan: --seq-len: seq_len 3000 for images, each of which makes 197
  hint: leave it out: the model's file says how large they are
== exit
3
