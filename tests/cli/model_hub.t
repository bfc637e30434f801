A name as hubs have it: the catalogue has the model under another.
== args
meta-llama/Llama-2-7b-hf
== stderr
memplan: no such file: 'meta-llama/Llama-2-7b-hf' (nothing is downloaded)
  hint: did you mean 'llama-2-7b'? 'memplan models' lists all
== exit
3
