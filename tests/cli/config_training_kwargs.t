Every second layer checkpointed, from the first on, is not --recompute-every; 0 parameters at least is every layer wrapped.
== args
llama-7b --gpus 8 --training-args run.json
== file run.json
{"bf16": true, "activation_checkpointing": true,
 "activation_checkpointing_kwargs": {"every_n_layers": 2, "offload": false, "use_reentrant": false},
 "fsdp": true, "fsdp_config": {"min_num_params": 0, "fsdp_version": 2}}
== stdout ~
run.json: activation_checkpointing_kwargs.every_n_layers 2 is not modelled: 1 is assumed
