A step is done or not: the last of them may be a part of one.
== args
compute llama-7b --gpus 16 --json
== stdout ~
"steps": 4112803,
