== args
gemma-3-4b --part all --seq-len 1024 --freeze vision --fast --json
== stdout ~
"trainable_parameters": 3883213440
