== args
vit-large-patch16-224 --loss chunked
== stderr
memplan: --implementation: implementation hf has no chunked loss for this head
== exit
3
