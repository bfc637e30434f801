== args
compute llama-7b --tokens 1T --json
== stdout ~
"schema": "memplan.compute/1"
