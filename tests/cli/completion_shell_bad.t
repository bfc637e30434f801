== args
completion tcsh
== stderr
memplan: 'tcsh' is none of: bash, zsh, fish
try 'memplan help completion'
== exit
2
