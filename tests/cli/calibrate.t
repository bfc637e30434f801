== args
calibrate r.jsonl --out mine.json
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "step_time_s", "value": 0.7}}
{"id": "b", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}
== stdout ~
calibration of a100-80gb, 1 measured step
one row is one number
passed over: 1 row of other kinds
== wrote mine.json ~
"schema": "memplan.calibration/1"
"gpu": "a100-80gb"
"rows": 1
