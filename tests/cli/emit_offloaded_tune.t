The same in torchtune.
== args
llama-7b --gpus 8 --framework torchtune --recompute full --offload-activations cpu --emit torchrun
== stdout ~
 enable_activation_offloading=True
== stderr
memplan: note: not in it: --framework; it is the program that is started
memplan: note: not in it: --recompute, --offload-activations; the program's code or recipe says it
