== args
someone/gpt-j-6b
== stderr
memplan: no such file: 'someone/gpt-j-6b' (nothing is downloaded)
  hint: the catalogue has 'gpt-j-6b'
== exit
3
