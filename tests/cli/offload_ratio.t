Twin-Flow: of 17 sub-groups six stay on the GPU.
== args
explain llama-7b --gpus 8 --zero 3 --offload-optimizer cpu --offload-ratio 0.6 --sub-group-size 50M
== stdout ~
    their fp32 gradients = 1.13 GiB (1,212,198,912 B)
    master weights that stay on the GPU = 1.13 GiB (1,212,198,912 B)
    their moments = 2.26 GiB (2,424,397,824 B)
    gradients, down = 2.01 GiB (2,157,008,896 B)
