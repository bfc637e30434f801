Where a step's time comes from names the calibration.
== args
explain llama-7b --gpus 8 --zero 3 --calibration mine.json
== file mine.json
{"schema": "memplan.calibration/1", "gpu": "a100-80gb", "rows": 3, "at_bound": ["products", "host"], "constants": {"products": 50, "attention": 50, "memory": 50, "network": 50, "host": 0.01}}
== stdout ~
calibrated by 'mine.json': products 50, attention 50, memory 50, network 50, host 0.01
