Activations that wait on the CPU: TRL's word for it, which is read again.
== args
llama-7b --gpus 8 --framework hf --recompute full --offload-activations cpu --emit training-args
== stdout ~
  "gradient_checkpointing": true,
  "activation_offloading": true,
== stderr
memplan: note: not in it: --gpus; the launcher says it: --emit torchrun
