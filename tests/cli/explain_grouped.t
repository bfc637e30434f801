== args
explain mixtral-8x7b --tp 2 --ep 4 --gpus 8
== stdout ~
    cuBLAS workspaces, one a thread = 64.00 MiB (67,108,864 B)
          workspaces * bytes
        = 2 * 33554432
