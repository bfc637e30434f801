One word that is near a command.
== args
modelss
== stderr ~
memplan: no file and no model is called 'modelss'
  hint: did you mean the command 'models'?
== exit
3
