What a file says is taken back, not repeated.
== args
llama-2-7b --accelerate f1.yaml --freeze-trainable-layers 2
== file f1.yaml
distributed_type: FSDP
fsdp_config:
  fsdp_version: 1
  fsdp_use_orig_params: false
mixed_precision: bf16
num_machines: 1
num_processes: 4
== stderr ~
beside the file: --use-orig-params
== exit
3
