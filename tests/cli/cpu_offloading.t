Layers whose activations wait on the CPU: what is left here, and what is moved.
== args
explain llama-7b --framework megatron --gpu h100-80gb --gpus 8 --tp 2 --cpu-offloading-num-layers 12 --fast
== stdout ~
kept by the layers before, on the GPU =
= 20 * 134881792
left of layers whose tensors are on the host =
= 12 * 139776
offload: in host memory, pinned, one GPU
offload: moved to the host in a step, one GPU
