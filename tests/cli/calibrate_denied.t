== args
calibrate r.jsonl --out mine.json
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "step_time_s", "value": 0.7}}
== denied mine.json
== stderr
memplan: cannot write 'mine.json': Permission denied
== exit
4
