== args
gpt2 --find micro_batch --micro-batch 4
== stderr
memplan: --micro-batch: find micro_batch: 'micro_batch' is given, and is what is looked for
  hint: leave 'micro_batch' out
== exit
3
