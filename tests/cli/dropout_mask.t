== args
llama-7b --framework megatron --seq-len 2048 --dropout 0 --dropout-mask --json
== stdout ~
"saved_layers": 9169289216,
