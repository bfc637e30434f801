Axolotl hands both to the Trainer, which refuses them.
== args
llama-7b --gpus 8 --training-args run.yaml
== file run.yaml
base_model: huggyllama/llama-7b
sequence_len: 2048
micro_batch_size: 1
bf16: true
gradient_checkpointing: true
fsdp_version: 2
fsdp_config:
  reshard_after_forward: true
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
  activation_checkpointing: true
== stderr ~
both gradient_checkpointing and FSDP's own activation_checkpointing are true
keep FSDP's: the Trainer refuses both, of Axolotl's own examples too
== exit
3
