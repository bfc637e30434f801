A step on the CPUs is told by its elements.
== args
explain gpt2 --gpus 2 --zero 2 --offload-optimizer cpu
== stdout ~
      optimizer: update on the CPUs = 0.0880 s
            elements of all ranks of a node * seconds of one
          = 124439808 * 7.06897e-10
            docs/method.md#eq-step-time
