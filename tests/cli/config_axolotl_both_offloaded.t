Where activations are offloaded Axolotl hands gradient_checkpointing to nobody.
== args
llama-7b --gpus 8 --training-args run.yaml --json
== file run.yaml
base_model: huggyllama/llama-7b
sequence_len: 2048
micro_batch_size: 1
bf16: true
gradient_checkpointing: true
activation_offloading: true
fsdp_version: 2
fsdp_config:
  reshard_after_forward: true
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
  activation_checkpointing: true
== stdout ~
"recompute": "full"
"offload_activations": "cpu"
