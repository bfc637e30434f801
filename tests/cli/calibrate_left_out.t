What is not fitted to says why, each row.
== args
calibrate r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "step_time_s", "value": 0.7}}
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "step_time_s", "value": 0.7}}
{"id": "b", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "mfu": 0.4}, "measured": {"metric": "step_time_s", "value": 0.7}}
{"id": "c", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "x-needs": "a fourth constant", "measured": {"metric": "step_time_s", "value": 0.7}}
{"id": "d", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "tp": 3}, "measured": {"metric": "step_time_s", "value": 0.7}}
{"id": "e", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}
== stdout ~
calibration of a100-80gb, 1 measured step
not fitted to
  a    it is there twice
  b    its setup gives 'mfu', which is what is predicted
  c    x-needs: a fourth constant
  d    8 GPUs cannot be split into tp 3
passed over: 1 row of other kinds
