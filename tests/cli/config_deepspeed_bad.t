== args
llama-7b --gpus 8 --deepspeed ds.json
== file ds.json
{"zero_optimization": {
  "stage": 4}}
== stderr
ds.json:2:12: error: /zero_optimization/stage: 'zero_optimization.stage' is 4, out of range
    2 |   "stage": 4}}
      |            ^
  hint: use 0 to 3
== exit
3
