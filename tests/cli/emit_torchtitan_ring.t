Who sends keys and values, and how, is written where there is context parallelism.
== args
llama-7b --gpus 8 --framework torchtitan --cp 2 --cp-comm p2p --emit torchtitan
== stdout ~
context_parallel_degree = 2
context_parallel_rotate_method = "alltoall"
