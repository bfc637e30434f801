== args
compute llama-7b --prices p.json
== file p.json
{"a100-80gb": "cheap"}
== stderr ~
US dollars per GPU-hour, 0 to 1e6, not a string
== exit
3
