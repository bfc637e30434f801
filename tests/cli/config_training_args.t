The DeepSpeed file that the arguments name lies beside them.
== args
llama-7b --gpus 8 --training-args run/args.json --json
== file run/args.json
{"bf16": true, "per_device_train_batch_size": 2, "deepspeed": "ds.json"}
== file run/ds.json
{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"},
 "train_micro_batch_size_per_gpu": "auto"}
== stdout ~
"framework": "deepspeed"
"zero": 3
"micro_batch": 2
"precision": "bf16-mixed"
run/ds.json: 'auto' is for its program to fill in
