== args
score -
== stdin
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}
== stdout ~
measured runs: 1 predicted, 0 skipped
