Options and the model in any order, both spellings of a value.
== args
--zero=3 llama-7b --gpus 64 --json
== stdout ~
"zero": 3
"gpus": 64
