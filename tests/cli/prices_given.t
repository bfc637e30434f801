An option overrides every file.
== args
compute llama-7b --gpus 8 --prices p.json --price 3
== file p.json
{"a100-80gb": 0.5}
== stdout ~
3.00 USD a GPU-hour
