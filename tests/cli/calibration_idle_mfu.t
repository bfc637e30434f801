== args
llama-7b --zero 3 --gpus 8 --mfu 0.4 --calibration mine.json
== file mine.json
{"schema": "memplan.calibration/1", "gpu": "a100-80gb", "rows": 3, "constants": {"products": 0.9, "host": 1.5}}
== stdout ~
the calibration 'mine.json' changes nothing: 'mfu' is given, no step is predicted
