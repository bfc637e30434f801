A step follows from an MFU that is given.
== args
explain llama-7b --gpus 64 --zero 3 --mfu 0.5
== stdout ~
  step time = 0.5416 s
        tokens per step * FLOPs per token / (GPUs * peak * MFU)
