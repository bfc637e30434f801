== args
llama-7b --framework megatron --seq-len 2048 --dropout 0 --json
== stdout ~
"saved_layers": 8632418304,
