== args
llava-1.5-7b --part all --lora-rank 16 --lora-targets q,v --fast --json
== stdout ~
"trainable_parameters": 9961472
