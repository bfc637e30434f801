A class of layers that the model does not have.
== args
llama-7b --accelerate fsdp.yaml
== file fsdp.yaml
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_transformer_layer_cls_to_wrap: Embedding,GPT2Block
== stderr
memplan: --fsdp-units: there is no class GPT2Block to wrap in the 'llama' model
  hint: its layers are LlamaDecoderLayer: write that as fsdp_transformer_layer_cls_to_wrap
== exit
3
