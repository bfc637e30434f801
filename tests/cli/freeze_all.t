== args
clip-vit-base-patch32 --freeze vision,text,projector
== stderr
memplan: --freeze: freeze of all parts leaves nothing to train
  hint: leave one out: text, vision or projector
== exit
3
