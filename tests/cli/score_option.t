== args
score r.jsonl --zero 3
== stderr
memplan: 'score' has no option '--zero'
  hint: 'memplan estimate' has it
try 'memplan help score'
== exit
2
