NeMo's YAML says of an entry that it is another one's; what is null was not asked for, and what is false stays so.
== args
llama-2-7b --gpu h100-80gb --megatron-args run.yaml --json
== file run.yaml
trainer:
  num_nodes: 1
  devices: 8
  precision: bf16
  gradient_clip_val: 0
model:
  micro_batch_size: 1
  global_batch_size: 8
  encoder_seq_length: 2048
  activations_checkpoint_granularity: null
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 0
  gradient_accumulation_fusion: False
  bias_dropout_add_fusion: False
  transformer_engine: True
  fp8: True
  optim:
    name: distributed_fused_adam
  data:
    seq_length: ${training.model.encoder_seq_length}
== stdout ~
"seq_len": 2048,
"recompute": "none",
"grad_accum_fusion": false,
"precision": "fp8-mixed",
"clip_grad": false,
run.yaml: bias_dropout_add_fusion false is not modelled: one kernel is assumed
