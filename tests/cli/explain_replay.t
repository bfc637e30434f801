== args
explain llama-7b --pp 2 --gpus 2 --grad-accum 8 --replay-batches --attention-mask dataloader
== stdout ~
    earlier batches of the step, to be replayed = 32.44 MiB (34,013,184 B)
          micro-batches * bytes of one
        = 8 * 4251648
