What is not there is DeepSpeed's default; options override the file.
== args
llama-7b --gpus 8 --deepspeed ds.json --micro-batch 2 --json
== file ds.json
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2},
 "train_micro_batch_size_per_gpu": 4, "new_key": {"a": 1}}
== stdout ~
"framework": "deepspeed"
"zero": 2
"micro_batch": 2
"precision": "bf16-mixed"
"clip_grad": false
ds.json: not known, so ignored: new_key
