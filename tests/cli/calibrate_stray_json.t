... and counted where no table says it.
== args
calibrate r.jsonl --json
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "step_time_s", "value": 0.7}}
{"id": "b", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 2}, "measured": {"metric": "step_time_s", "value": 1.3}}
{"id": "c", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 4}, "measured": {"metric": "step_time_s", "value": 2500}}
{"id": "d", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 3}, "measured": {"metric": "step_time_s", "value": 1.9}}
== stdout ~
"rows": 4
== stderr ~
1 of the rows is further off than a constant may move
