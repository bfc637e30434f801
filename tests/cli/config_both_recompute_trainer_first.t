== args
gpt2 --training-args ta.json --accelerate acc.yaml
== file acc.yaml
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_activation_checkpointing: true
== file ta.json
{"bf16": true, "gradient_checkpointing": true}
== stderr ~
acc.yaml:4:34: error: 
both gradient_checkpointing and FSDP's own activation_checkpointing are true
keep FSDP's: the Trainer refuses both
== exit
3
