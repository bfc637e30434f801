A block of no layers is made again: none is.
== args
llama-7b --megatron-args run.yaml --json
== file run.yaml
trainer:
  devices: 8
  precision: bf16
model:
  micro_batch_size: 1
  activations_checkpoint_granularity: full
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 0
== stdout ~
"recompute": "none",
