Passes of an optimizer's step have the numbers that make them, and so has its host.
== args
explain gpt2 --gpus 2 --framework deepspeed --zero 0 --precision fp16-mixed
== stdout ~
      optimizer: update = 2.52e-03 s
            share on the GPU * (elements * bytes + 2 * moments) / rate
          = 1 * (124439808 * 12 + 2 * 995518464) / 1.38487e+12
            docs/method.md#eq-optimizer-passes
      optimizer: waiting for the host = 0.0262 s
            share on the GPU * (max(0, kernels * start - passes that are not waited for) + starts that tensors leave bare + waits * start)
          = 1 * (max(0, 296 * 1.4e-05 - 0.00540298) + 0.026133 + 3 * 1.4e-05)
            docs/method.md#eq-optimizer-passes
