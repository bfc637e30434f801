== args
qwen3-vl-8b --part all --freeze vision --framework fsdp --gpus 8
== stderr ~
freeze with FSDP version 1
--engine fsdp2
== exit
3
