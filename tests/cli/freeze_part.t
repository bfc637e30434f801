== args
gemma-3-4b --freeze vision
== stderr
memplan: --freeze: freeze of a model that is one part
  hint: add --part all, or leave freeze out
== exit
3
