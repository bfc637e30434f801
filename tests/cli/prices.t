== args
compute llama-7b --gpus 8 --prices p.json
== file p.json
{"a100-80gb": 0.5, "x-from": "us"}
== stdout ~
0.50 USD a GPU-hour
