== args
someone/something
== stderr
memplan: no such file: 'someone/something' (nothing is downloaded)
  hint: save the model's config.json and name that file
== exit
3
