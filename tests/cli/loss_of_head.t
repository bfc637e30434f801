== args
vit-large-patch16-224 --loss chunked
== stderr
memplan: --implementation: implementation litgpt has no encoders
  hint: Hugging Face's layers may have it: use --loss standard
== exit
3
