== args
score r.jsonl --calibration mine.json
== file mine.json
{"schema": "memplan.calibration/1", "gpu": "a100-80gb", "rows": 3, "constants": {"products": 0.9, "host": 1.5}}
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3, "gpu": "h200"}, "measured": {"metric": "step_time_s", "value": 0.7}}
== stdout ~
gpu: the calibration 'mine.json' is of a100-80gb, the GPU is h200
== stderr
memplan: no row was predicted
  hint: each line is a run: id, group, kind, model, setup, measured
== exit
1
