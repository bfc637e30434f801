== args
explain llama-7b --tp 2 --gpus 2 --framework megatron --loss fused --ce-fusion native
== stdout ~
      softmax = 125.0 MiB (131,072,000 B)
