== args
bert-large --framework megatron --tp 2 --sequence-parallel
== stderr ~
sequence parallelism of an encoder is not modelled
hint: leave it out, or add --no-sequence-parallel
== exit
3
