== args
calibrate r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}
== stderr
memplan: no measured step of a run that memplan can predict
  hint: rows of "kind": "throughput" are read (man memplan, SCORE)
== exit
3
