== args
explain llama-7b --tp 2 --gpus 2 --framework megatron --grad-accum-fusion
== stdout ~
    dummy weight gradients under fusion, one a shape = 318.0 MiB (333,447,168 B)
