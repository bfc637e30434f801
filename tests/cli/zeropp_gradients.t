The embedding's gradient, 131,072,000 weights, in 4 bits on two nodes of 8: sent
and received, of the node's sums too, as fp16, and while nodes are added.
== args
explain llama-7b --gpus 16 --zero 3 --zero-quantized-gradients --fast --seq-len 128 --reduce-bucket 20M
== stdout ~
    a gradient in 4 bits, sent and received = 203.1 MiB (212,992,000 B)
