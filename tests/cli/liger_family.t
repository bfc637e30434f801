== args
grok-1 --implementation hf-liger
== stderr
memplan: --implementation: implementation 'hf-liger' of a 'grok-1' model is not modelled yet
  hint: use --implementation hf
== exit
3
