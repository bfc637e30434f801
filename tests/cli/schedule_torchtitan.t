PyTorch has ZB-V, DualPipeV and interleaved ones, not ZB-H1.
== args
estimate llama-3-8b --framework torchtitan --gpus 8 --pp 2 --schedule zb-h1
== stderr
memplan: --schedule: schedule 'zb-h1' with implementation 'torchtitan' is not modelled: PyTorch has no such schedule
  hint: use --schedule zb-v, dualpipe-v or 1f1b
== exit
3
