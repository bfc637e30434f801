== args
explain llama-7b --framework megatron-deepspeed --implementation megatron-local --gpus 8 --zero 3
== stdout ~
    reduce bucket = 1.86 GiB (2,000,000,000 B)
