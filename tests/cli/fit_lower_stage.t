A higher ZeRO stage may need more than a lower one: that is said with why.
== args
gpt2 --zero 3 --gpus 2 --gpu-memory 3GiB --fast
== stdout ~
a lower ZeRO stage needs less here: gathered weights and buckets of stage 3
