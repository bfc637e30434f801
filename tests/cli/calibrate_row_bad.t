== args
calibrate r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8}, "measured": {"metric": "step_tims", "value": 0.7}}
== stderr
r.jsonl:1:115: error: /measured/metric: 'metric' is not 'step_tims'
    1 | ...p": {"gpus": 8}, "measured": {"metric": "step_tims", "value": 0.7}}
      |                                            ^
  hint: write one of: tokens_per_s_per_gpu step_time_s tflops_per_gpu mfu
== exit
3
