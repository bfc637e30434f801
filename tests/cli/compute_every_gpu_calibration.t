One GPU's speeds beside all of them: said once.
== args
compute llama-2-7b --zero 3 --every-gpu --calibration mine.json
== file mine.json
{"schema": "memplan.calibration/1", "gpu": "h100-80gb", "rows": 3, "constants": {"products": 0.9, "host": 1.5}}
== stderr
memplan: the calibration 'mine.json' is of h100-80gb, and every GPU of the catalogue is asked for
  hint: leave --calibration out, or --every-gpu
== exit
3
