== args
compute llama-7b --gpu h200 --calibration mine.json
== file mine.json
{"schema": "memplan.calibration/1", "gpu": "a100-80gb", "rows": 3, "constants": {"products": 0.9, "host": 1.5}}
== stderr
memplan: --gpu: the calibration 'mine.json' is of a100-80gb, the GPU is h200
  hint: leave --calibration out, or measure on that GPU
== exit
3
