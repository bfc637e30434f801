== args
clip-vit-base-patch32 --micro-batch 32 --tp 2 --framework deepspeed --gpus 2
== stderr ~
tp 2 of two parts at once is not modelled
== exit
3
