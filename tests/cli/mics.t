MiCS: each weight is gathered once, replicas agree once a step; the GPU keeps
the states of some sub-groups.
== args
explain llama-7b --gpus 64 --zero 3 --mics-shard-size 8 --grad-accum 4
== stdout ~
    kept from forward to backward = 1.86 GiB (2,000,000,000 B)
    gradients between replicas = 2.75 GiB (2,948,056,832 B)
