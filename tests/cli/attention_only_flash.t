== args
phi-3-small-8k --attention eager
== stderr
memplan: --attention: Hugging Face's layers have no eager attention for this family
  hint: use --attention flash
== exit
3
