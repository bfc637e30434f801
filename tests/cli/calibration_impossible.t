Faster than the peak is impossible, and constants at their bounds are suspect.
== args
llama-7b --gpus 8 --zero 3 --calibration mine.json
== file mine.json
{"schema": "memplan.calibration/1", "gpu": "a100-80gb", "rows": 3, "at_bound": ["products", "host"], "constants": {"products": 50, "attention": 50, "memory": 50, "network": 50, "host": 0.01}}
== stdout ~
constants of 'mine.json' stopped at a bound: products, host; no speed of a machine
impossible: the predicted step computes at
so the calibration's constants are not its speeds
