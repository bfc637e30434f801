== args
compute llama-7b --tokens 1T --zero 3 --days 30 --every-gpu --json
== stdout ~
"schema": "memplan.offers/1"
"gpu": "h100-80gb"
