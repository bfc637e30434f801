== args
calibrate r.jsonl --json
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "step_time_s", "value": 700}}
{"id": "b", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "micro_batch": 2}, "measured": {"metric": "step_time_s", "value": 1400}}
== stdout ~
  "at_bound": [
    "products",
    "memory"
  ],
  "rows": 2,
== stderr
memplan: note: 2 of the constants stopped at their bound
memplan: note: 2 of the rows are further off than a constant may move: look for a figure in another unit
