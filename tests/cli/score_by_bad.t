== args
score r.jsonl --by colour
== stderr
memplan: --by: 'colour' is none of: group metric zero tp pp cp ep recompute lora framework
try 'memplan help score'
== exit
2
