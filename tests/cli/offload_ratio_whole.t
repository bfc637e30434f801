What a ratio comes to is said: whole sub-groups.
== args
llama-7b --gpus 8 --zero 3 --offload-optimizer cpu --offload-ratio 0.3
== stdout ~
offload_ratio 0.3 moves whole sub-groups: of n, int(0.7 n) stay on the GPU
