== args
explain gpt2 --gpus 1 --precision fp32 --no-zero-grad-set-to-none
== stdout ~
    gradients, zeroed in place = 474.7 MiB (497,759,232 B)
          bytes
        = 497759232
