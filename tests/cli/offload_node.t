== args
explain llama-7b --gpus 8 --zero 3 --offload-optimizer cpu --fast
== stdout ~
offload: a node
