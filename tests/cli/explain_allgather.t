== args
explain mixtral-8x7b --ep 8 --gpus 8 --moe-dispatcher allgather
== stdout ~
        = 268435456
