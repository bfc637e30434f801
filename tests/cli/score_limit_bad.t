== args
score r.jsonl --limit-median few
== file r.jsonl
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}
== stderr
memplan: --limit-median: 'few' is no share, 0 or more
  hint: write 2% or 0.02
try 'memplan help score'
== exit
2
