== args
gpt2 --gpu-memory 8GiB --cuda-context 1GiB
== stdout ~
CUDA context and kernels   1.00
