== args
llama-7b --gpus 8 --zero 3 --calibration mine.json
== file mine.json
{"schema": "memplan.calibration/1", "gpu": "a100-80gb", "rows": 3, "constants": {"products": 0.9, "host": 1.5}}
== stdout ~
calibrated by 'mine.json' (3 rows): products 0.9, attention 1, memory 1, network 1, host 1.5
