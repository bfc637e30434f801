One that was trained further has the shapes of its base.
== args
someone/Mistral-7B-Instruct-v0.2
== stderr
memplan: no such file: 'someone/Mistral-7B-Instruct-v0.2' (nothing is downloaded)
  hint: did you mean 'mistral-7b-v0.2'? 'memplan models' lists all
== exit
3
