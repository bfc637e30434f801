== args
trace gpt2 --gpus 4 --pp 2 --vpp 2 --schedule interleaved --grad-accum 4
== stderr ~
--schedule: the interleaved schedule is not traced yet
== exit
3
