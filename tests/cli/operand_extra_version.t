== args
version now
== stderr
memplan: one operand too many: 'now'
try 'memplan help version'
== exit
2
