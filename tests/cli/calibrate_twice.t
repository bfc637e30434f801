== args
calibrate r.jsonl s.jsonl r.jsonl
== file r.jsonl
{}
== stderr
memplan: 'r.jsonl' is given twice
try 'memplan help calibrate'
== exit
2
