== args
bert-large --framework megatron --tp 2
== stderr ~
sequence parallelism of an encoder is not modelled
hint: add --no-sequence-parallel
== exit
3
