One row in milliseconds among others in seconds is named.
== args
calibrate r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "step_time_s", "value": 0.7}}
{"id": "b", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 2}, "measured": {"metric": "step_time_s", "value": 1.3}}
{"id": "c", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 4}, "measured": {"metric": "step_time_s", "value": 2500}}
{"id": "d", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 3}, "measured": {"metric": "step_time_s", "value": 1.9}}
== stdout ~
row 'c': step_time_s 2500 where
is the unit
