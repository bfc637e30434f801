== args
llama-7b --framework nemo --gpus 16 --emit torchrun
== stderr
memplan: --framework: framework 'nemo' has no word in a file of torchrun
  hint: NeMo's recipes take trainer.devices, trainer.num_nodes and the layout as arguments; Megatron-LM's line is --framework megatron
== exit
3
