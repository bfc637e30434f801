Disks have rows of their own, with numbers put in; all ranks share a node's.
== args
explain llama-7b --zero 3 --gpus 8 --offload-optimizer nvme
== stdout ~
    transfers to and from disks = 31.940 s
docs/method.md#eq-step-time; deepspeedai/DeepSpeed, blogs/deepnvme
      disks: states of sub-groups = 26.954 s
= 1 * max(0, 13476831232 * 8 / 10000000000 + 10107623424 * 8 / 5000000000 - 0)
= 1 * max(0, 3369207808 / (31500000000 * 0.87) - 0)
