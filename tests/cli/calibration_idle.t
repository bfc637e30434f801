== args
compute --params 13B --calibration mine.json
== file mine.json
{"schema": "memplan.calibration/1", "gpu": "a100-80gb", "rows": 3, "constants": {"products": 0.9, "host": 1.5}}
== stdout ~
the calibration 'mine.json' changes nothing: without a model no step is predicted
