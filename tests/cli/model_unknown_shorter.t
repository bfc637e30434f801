A name that only lacks a word is that name, not one of another size.
== args
llama-70b
== stderr
memplan: no file and no model is called 'llama-70b'
  hint: did you mean 'llama-2-70b'? 'memplan models' lists all
== exit
3
