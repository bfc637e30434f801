Weights of two types, and scales: three products.
== args
explain llama-7b --lora-rank 16 --base-dtype nf4 --gpu a100-80gb
== stdout ~
    frozen weights of base_dtype = 3.02 GiB (3,238,002,688 B)
          P_base * bits / bits of a byte
        = 6476005376 * 4 / 8
          docs/method.md#eq-states
    other frozen weights = 1001.0 MiB (1,049,640,960 B)
          (P_frozen - P_base) * bytes per weight
        = 262410240 * 4
          docs/method.md#eq-states
    scales of base_dtype, tensor by tensor = 386.0 MiB (404,764,672 B)
          bytes
        = 404764672
          docs/method.md#eq-states
