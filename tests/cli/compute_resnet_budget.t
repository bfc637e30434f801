== args
compute resnet-50-cifar --budget 1e20
== stderr
memplan: --budget: budget belongs to scaling laws, with C = 6 N D, which hold for language models
  hint: leave it out, and give --tokens
== exit
3
