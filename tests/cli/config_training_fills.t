What the DeepSpeed file leaves out Accelerate adds: the Trainer's format.
== args
llama-7b --gpus 8 --training-args a.json --json
== file a.json
{"bf16": true, "deepspeed": "ds.json"}
== file ds.json
{"zero_optimization": {"stage": 2}}
== stdout ~
"zero": 2
"precision": "bf16-mixed"
