== args
llava-1.5-7b --part all --freeze vision --lora-rank 16 --lora-full-modules projector --fast --json
== stdout ~
"trainable_parameters": 60956672
