== args
explain
== stderr
memplan: 'explain' needs a MODEL: a path, '-' or a catalogue name
try 'memplan help explain'
== exit
2
