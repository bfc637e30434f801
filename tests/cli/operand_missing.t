== args
estimate --zero 3
== stderr
memplan: 'estimate' needs a MODEL: a path, '-' or a catalogue name
try 'memplan help estimate'
== exit
2
