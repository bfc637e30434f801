NeMo's YAML has a number of layers beside the switch, which is off.
== args
llama-7b --gpus 8 --megatron-args run.yaml --json
== file run.yaml
trainer:
  precision: bf16
model:
  tensor_model_parallel_size: 2
  micro_batch_size: 1
  cpu_offloading: False
  cpu_offloading_num_layers: ${sum:${.num_layers},-1}
  cpu_offloading_activations: True
== stdout ~
"offload_activations": "none"
"cpu_offloading_num_layers": 0
