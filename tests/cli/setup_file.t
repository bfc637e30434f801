Options override the file.
== args
llama-7b --gpus 8 --setup s.json --json
== file s.json
{"zero": 3, "gpus": 64}
== stdout ~
"gpus": 8
"zero": 3
