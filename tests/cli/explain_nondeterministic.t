== args
explain mixtral-8x7b --tp 2 --ep 4 --gpus 8 --no-deterministic
== stdout ~
    cuBLAS workspaces, one a thread = 16.25 MiB (17,039,360 B)
          workspaces * bytes
        = 2 * 8519680
