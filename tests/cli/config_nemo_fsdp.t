PyTorch's sharding in NeMo 1.
== args
llama-2-7b --gpu h100-80gb --megatron-args run.yaml
== file run.yaml
trainer:
  devices: 8
  precision: bf16
model:
  fsdp: true
  optim:
    name: fused_adam
== stderr
run.yaml:5:9: error: /fsdp: NeMo's fsdp is not modelled
    5 |   fsdp: true
      |         ^
  hint: without it the optimizer's states are sharded: optim.name distributed_fused_adam
== exit
3
