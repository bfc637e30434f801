Megatron-Bridge's name of 8-bit products says the recipe, how weights are stored, and which layers have none.
== args
llama-7b --gpu h100-80gb --gpus 8 --megatron-args run.yaml --json
== file run.yaml
mixed_precision: bf16_with_fp8_current_scaling_mixed
model:
  tensor_model_parallel_size: 2
train:
  micro_batch_size: 1
  global_batch_size: 8
ddp:
  use_distributed_optimizer: true
  grad_reduce_in_fp32: false
== stdout ~
"precision": "fp8-mixed",
"fp8_recipe": "tensorwise",
"fp8_params": true,
"num_layers_at_start_in_bf16": 1,
"num_layers_at_end_in_bf16": 1,
run.yaml: grad_reduce_in_fp32 false is not modelled: true is assumed (--grad-dtype)
