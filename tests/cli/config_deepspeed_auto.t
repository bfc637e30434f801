The Trainer's "auto" is by the hidden size, 4096.
== args
llama-7b --gpus 8 --deepspeed ds.json --json
== file ds.json
{"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
  "stage3_prefetch_bucket_size": "auto",
  "stage3_param_persistence_threshold": "auto"}}
== stdout ~
"reduce_bucket": 16777216
"prefetch_bucket": 15099494
"persistence_threshold": 40960
buckets as the Trainer fills in \"auto\", by the hidden size (--reduce-bucket)
