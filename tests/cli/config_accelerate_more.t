More GPUs than a file's machine has are more such machines.
== args
llama-2-7b --accelerate f1.yaml --gpus 16
== file f1.yaml
distributed_type: MULTI_GPU
mixed_precision: bf16
num_machines: 1
num_processes: 4
== stdout ~
nodes of 4 GPUs, as in f1.yaml: num_machines (--gpus-per-node)
