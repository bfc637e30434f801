Only names of constants stand in at_bound.
== args
llama-7b --calibration mine.json
== file mine.json
{ "schema": "memplan.calibration/1", "gpu": "a100-80gb", "rows": 3,
  "at_bound": ["product"], "constants": {} }
== stderr ~
error: /at_bound/0: 'at_bound' is a list of constants
== exit
3
