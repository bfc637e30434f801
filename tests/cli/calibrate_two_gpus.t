== args
calibrate r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "step_time_s", "value": 0.7}}
{"id": "b", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "gpu": "h200"}, "measured": {"metric": "step_time_s", "value": 0.7}}
== stderr
memplan: rows of two GPUs: 'a' of a100-80gb, 'b' of h200
  hint: calibrate each GPU from a file of its own
== exit
3
