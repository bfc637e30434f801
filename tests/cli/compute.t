== args
compute --params 13B --tokens 260B --days 7 --mfu 0.4 --json
== stdout ~
"schema": "memplan.compute/1"
"gpus": 269
