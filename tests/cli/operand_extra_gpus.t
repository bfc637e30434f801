== args
gpus a100-80gb h100-80gb
== stderr
memplan: one operand too many: 'h100-80gb'
try 'memplan help gpus'
== exit
2
