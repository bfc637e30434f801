The script says how many GPUs there are, another file the rest.
== args
llama-7b --training-args args.json --torchrun run.sh --json
== file args.json
{"per_device_train_batch_size": 2, "bf16": true}
== file run.sh
torchrun --nnodes=$((1+1)) --nproc_per_node=8 train.py args.json
== stdout ~
"gpus": 16
"gpus_per_node": 8
"micro_batch": 2
