== args
dbrx --lora-rank 8
== stderr
memplan: --precision: transformers' DBRX under autocast over 16-bit weights adds fp32 rows to 16-bit ones, which PyTorch refuses
  hint: use --precision bf16
== exit
3
