Of thousands of numbers of GPUs some are passed over: no more is said than was looked at.
== args
llama-7b --zero 3 --recompute full --fast --gpu-memory 6680000000 --find gpus
== stdout ~
GPUs, the fewest that were looked at
with the allocator, others passed over
