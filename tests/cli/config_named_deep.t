A file far down is read by its whole name.
== args
llama-7b --gpus 8 --training-args args.json --json
== file args.json
{"deepspeed": "a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/ds.json", "bf16": true, "per_device_train_batch_size": 1}
== file a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/a-folder-with-a-name-of-forty-characters/ds.json
{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}
== stdout ~
"zero": 3
