== args
check --cases c.json --json
== file c.json
{"cases": [
  {"name": "big", "model": "llama-7b", "assert": {"max_memory": "1GiB"}}
]}
== stdout ~
"schema": "memplan.check/1"
== exit
1
