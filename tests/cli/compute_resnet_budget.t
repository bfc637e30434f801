== args
compute resnet-50-cifar --budget 1e20
== stderr
memplan: --budget: budget gives tokens by C = 6 N D, which holds for language models
  hint: leave it out, and give --tokens
== exit
3
