== args
calibrate r.jsonl --json
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 1}, "measured": {"metric": "step_time_s", "value": 700}}
{"id": "b", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 2}, "measured": {"metric": "step_time_s", "value": 1400}}
{"id": "c", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 3}, "measured": {"metric": "step_time_s", "value": 2100}}
{"id": "d", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 4}, "measured": {"metric": "step_time_s", "value": 2800}}
{"id": "e", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 5}, "measured": {"metric": "step_time_s", "value": 3500}}
{"id": "f", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 6}, "measured": {"metric": "step_time_s", "value": 4200}}
== stdout ~
  "at_bound": [
    "products",
    "memory"
  ],
  "rows": 6,
== stderr
memplan: note: 2 of the constants stopped at their bound
memplan: note: 6 of the rows are further off than a constant may move: look for a figure in another unit
