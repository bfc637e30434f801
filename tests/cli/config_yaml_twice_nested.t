Of Axolotl's file too, in an object and after a list.
== args
llama-7b --gpus 8 --training-args run.yaml
== file run.yaml
base_model: huggyllama/llama-7b
sequence_len: 2048
datasets:
  - path: a
    type: b
    type: c
micro_batch_size: 1
bf16: true
fsdp_version: 1
fsdp_version: 2
fsdp_config:
  reshard_after_forward: false
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
  reshard_after_forward: true
== stdout ~
zero 3 (fsdp2)
datasets.type is there twice, on lines 5 and 6: the last is taken, as by its program
fsdp_version is there twice, on lines 9 and 10: the last is taken, as by its program
fsdp_config.reshard_after_forward is there twice, on lines 12 and 14: the last is taken, as by its program
