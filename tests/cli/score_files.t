== args
score r.jsonl s.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}
== file s.jsonl
{"id": "b", "group": "g", "kind": "oom", "model": "llama-7b", "setup": {"zero": 0}, "measured": {"fits": false}}
== stdout ~
measured runs: 2 predicted, 0 skipped
