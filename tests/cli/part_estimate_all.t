== args
gemma-3-4b --part all --seq-len 512
== stderr ~
the memory of all parts of a 'gemma3' model at once is not modelled
== exit
3
