Logits' gradients, the head's inputs and what these lead to, on the last stage.
== args
explain llama-3-8b --framework megatron --gpu h100-80gb --pp 2 --gpus 4 --tp 2 --grad-accum 8 --micro-batch 2 --grad-accum-fusion --defer-embedding-wgrad-compute --wgrad-deferral-limit 5
== stdout ~
    gradients of logits, for the head's weight = 4.89 GiB (5,253,365,760 B)
          micro-batches * bytes of one
        = 5 * 1050673152
    inputs of the output layer, for its weight = 160.0 MiB (167,772,160 B)
          micro-batches * bytes of one
        = 5 * 33554432
    hidden states that these lead to, and gradients = 320.0 MiB (335,544,320 B)
          tensors * bytes of hidden states
        = 10 * 33554432
    inputs gathered for deferred weight gradients = 128.0 MiB (134,217,728 B)
          buffers * bytes
        = 2 * 67108864
