ZeRO++: weights in 8 bits, gathered once over all ranks and else inside a node;
gradients in 4 bits, 7/8 of them inside a node and 7/8 of its sums between nodes.
== args
explain llama-7b --gpus 64 --zero 3 --zero-quantized-weights --zero-quantized-gradients --hpz-partition-size 8
== stdout ~
    prefetched: flat gather buffer, in 8 bits = 90.68 MiB (95,088,768 B)
    its scales = 46.43 KiB (47,548 B)
    the same in fp16 = 181.4 MiB (190,177,536 B)
