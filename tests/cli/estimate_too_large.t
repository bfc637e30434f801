== args
llama-7b --micro-batch 65536 --seq-len 1e8
== stderr ~
the bytes do not fit into 64 bits
check the model's sizes, 'micro_batch', 'seq_len'
== exit
5
