== args
t5-base --framework megatron
== stderr ~
memplan: 
has no relative position biases
== exit
3
