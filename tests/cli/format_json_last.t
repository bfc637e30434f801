--json is --format json; the last one wins.
== args
llama-7b --format csv --json
== stdout ~
"schema": "memplan.estimate/1"
