A figure in another unit (milliseconds) is no speed of a machine.
== args
calibrate r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "step_time_s", "value": 700}}
{"id": "b", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 2}, "measured": {"metric": "step_time_s", "value": 1400}}
== stdout ~
at its bound
stopped at their bound, a factor of 5: look for a figure in another unit, or for
