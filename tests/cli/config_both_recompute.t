== args
gpt2 --accelerate acc.yaml --training-args ta.json
== file acc.yaml
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_activation_checkpointing: true
== file ta.json
{"bf16": true, "gradient_checkpointing": true}
== stderr ~
ta.json:1:42: error: 
both gradient_checkpointing and FSDP's own activation_checkpointing are true
keep FSDP's: the Trainer refuses both
== exit
3
