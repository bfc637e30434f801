== args
clip-vit-base-patch32 --freeze vision --framework fsdp --engine fsdp --gpus 8
== stderr ~
freeze with FSDP version 1
--engine fsdp2
== exit
3
