PEFT's all-linear adapts a classifier, which is no output embedding.
== args
vit-large-patch16-224 --lora-rank 4
== stdout ~
1,777,568 trained
