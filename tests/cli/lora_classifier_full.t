One that is trained in full has no adapter.
== args
vit-large-patch16-224 --lora-rank 4 --lora-full-modules head
== stdout ~
2,794,472 trained
