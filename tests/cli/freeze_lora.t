== args
clip-vit-base-patch32 --freeze vision --lora-rank 8
== stderr ~
adapters of two parts at once
== exit
3
