== args
explain llama-7b --calibration mine.json
== file mine.json
{ "schema": "memplan.calibration/1", "gpu": "a100-80gb", "rows": 3,
  "constants": { "product": 0.9 } }
== stderr
mine.json:2:29: error: /constants/product: there is no such constant
    2 |   "constants": { "product": 0.9 } }
      |                             ^
  hint: they are products, attention, memory, network and host
== exit
3
