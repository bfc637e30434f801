== args
explain llama-7b --zero 3 --gpus 64 --json
== stdout ~
"schema": "memplan.explain/1"
