== args
calibrate r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "tflops_per_gpu", "value": 1.6e14}}
== stderr
r.jsonl:1:153: error: /measured/value: no GPU does as many TFLOP/s
    1 | ...: {"metric": "tflops_per_gpu", "value": 1.6e14}}
      |                                            ^
  hint: write 160 for 1.6e+14 FLOP/s
== exit
3
