== args
explain mamba-370m --ssm-kernel torch --seq-len 1024 --micro-batch 1
== stdout ~
      states = 127.9 MiB (134,086,656 B)
            b * D * N * s-1 * fp32
          = 1 * 2048 * 16 * 1023 * 4
