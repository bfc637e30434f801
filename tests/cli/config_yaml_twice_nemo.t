NeMo's file is refused too, at the second key.
== args
llama-7b --megatron-args run.yaml
== file run.yaml
trainer:
  devices: 8
model:
  micro_batch_size: 1
  tensor_model_parallel_size: 2
  micro_batch_size: 2
== stderr ~
run.yaml:6:3: error: a key twice
its program refuses the file; the first is on line 4
== exit
3
