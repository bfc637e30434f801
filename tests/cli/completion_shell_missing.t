== args
completion
== stderr
memplan: 'completion' needs a shell: bash, zsh or fish
try 'memplan help completion'
== exit
2
