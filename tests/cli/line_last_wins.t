== args
llama-7b --gpus 8 --gpus 64 --json
== stdout ~
"gpus": 64
