== args
estimate llama-3-8b --framework torchtitan --gpus 8 --pp 2 --schedule zb-h1
== stderr
memplan: --schedule: schedule 'zb-h1' with implementation 'torchtitan' is not modelled yet: PyTorch's split backward keeps all activations
  hint: use --framework megatron, or --schedule 1f1b
== exit
3
