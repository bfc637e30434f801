== args
explain gpt3-13b --tp 2 --gpus 2 --framework megatron --implementation megatron-local --seq-len 1024
== stdout ~
    Megatron's global buffer
