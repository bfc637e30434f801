== args
clip-vit-base-patch32 --freeze vision --micro-batch 64 --fast
== stdout ~
frozen weights
