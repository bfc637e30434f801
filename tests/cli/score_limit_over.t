== args
score r.jsonl --limit-median 0.1%
== file r.jsonl
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}
== stdout ~
measured runs
== exit
1
