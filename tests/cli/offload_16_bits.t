DeepSpeed's masters, and gradients for the step, are in 16 bits with pure bf16;
its CPU Adam has moments in fp32.
== args
explain llama-7b --zero 2 --gpus 8 --precision bf16 --offload-optimizer cpu
== stdout ~
    master weights = 2.00 GiB (2,147,483,648 B)
    optimizer moments = 6.28 GiB (6,738,415,616 B)
    gradients for the step = 2.00 GiB (2,147,483,648 B)
    gradients, down = 1.57 GiB (1,684,603,904 B)
