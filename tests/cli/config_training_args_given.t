The file that it names is not here; the one that is given is meant.
== args
llama-7b --gpus 8 --training-args run/args.json --deepspeed ds3.json --json
== file run/args.json
{"deepspeed": "examples/ds.json", "bf16": true, "per_device_train_batch_size": 2}
== file ds3.json
{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}
== stdout ~
"zero": 3,
"micro_batch": 2,
