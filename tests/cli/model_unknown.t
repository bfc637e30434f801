== args
no-such-model-at-all
== stderr ~
memplan: no file and no model is called 'no-such-model-at-all'
  hint: 
== exit
3
