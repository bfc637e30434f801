The same in torchtune.
== args
llama-7b --gpus 8 --framework torchtune --recompute full --offload-activations cpu --emit torchrun
== stdout ~
 enable_activation_offloading=True
