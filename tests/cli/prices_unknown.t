== args
compute llama-7b --prices p.json
== file p.json
{"a100-80g": 0.5}
== stderr ~
unknown GPU 'a100-80g' in a list of prices
did you mean 'a100-80gb'?
== exit
3
