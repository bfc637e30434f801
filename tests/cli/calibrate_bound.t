A figure in another unit (milliseconds) is no speed of a machine.
== args
calibrate r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 1}, "measured": {"metric": "step_time_s", "value": 700}}
{"id": "b", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 2}, "measured": {"metric": "step_time_s", "value": 1400}}
{"id": "c", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 3}, "measured": {"metric": "step_time_s", "value": 2100}}
{"id": "d", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 4}, "measured": {"metric": "step_time_s", "value": 2800}}
{"id": "e", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 5}, "measured": {"metric": "step_time_s", "value": 3500}}
{"id": "f", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 6}, "measured": {"metric": "step_time_s", "value": 4200}}
== stdout ~
at its bound
stopped at their bound, a factor of 5: look for a figure in another unit, or for
