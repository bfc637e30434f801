== args
dit-xl-2 --framework megatron
== stderr ~
memplan: 
layers that times and classes scale
== exit
3
