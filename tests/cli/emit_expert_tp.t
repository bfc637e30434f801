What Megatron's default would be is not left to it.
== args
deepseek-v2-lite --gpus 64 --tp 2 --pp 4 --ep 16 --framework megatron --emit megatron
== stdout ~
--expert-tensor-parallel-size 1
