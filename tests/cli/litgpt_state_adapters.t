LitGPT's loss beside adapters is not what was asked for.
== args
mamba-1.4b --implementation litgpt --lora-rank 4 --lora-targets in_proj
== stderr
memplan: --implementation: implementation 'litgpt' of a 'mamba' model, which LitGPT has not
  hint: use --implementation hf
== exit
3
