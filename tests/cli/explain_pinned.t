What pinned buffers are rounded up to is in the formula.
== args
explain llama-7b --zero 2 --gpus 8 --offload-optimizer cpu
== stdout ~
buffer of one gradient = 256.0 MiB
elements * bytes, up to a power of two
= 131072000 * 2, up to a power of two
