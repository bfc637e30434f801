ZeRO++: weights in 8 bits, gathered once over all ranks and else inside a node;
gradients in 4 bits, 7/8 of them inside a node and 7/8 of its sums between nodes.
== args
explain llama-7b --gpus 64 --zero 3 --zero-quantized-weights --zero-quantized-gradients --hpz-partition-size 8 --recompute full --seq-len 512
== stdout ~
    fetched ahead: flat gather buffers, in 8 bits = 125.0 MiB (131,076,096 B)
    their scales = 64.00 KiB (65,540 B)
    one of them in fp16, and copies out of it = 500.0 MiB (524,288,000 B)
