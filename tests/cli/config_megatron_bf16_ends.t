No layer at one end stays in 16 bits: 0 is a number of layers.
== args
llama-7b --gpus 8 --gpu h100-80gb --megatron-args run.sh --json
== file run.sh
pretrain_gpt.py --bf16 --fp8-format hybrid --fp8-recipe tensorwise --first-last-layers-bf16 --num-layers-at-start-in-bf16 0 --num-layers-at-end-in-bf16 2
== stdout ~
"num_layers_at_start_in_bf16": 0,
"num_layers_at_end_in_bf16": 2,
