Accelerate refuses what it would ignore beside a DeepSpeed file.
== args
llama-7b --accelerate a.yaml
== file a.yaml
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 8
deepspeed_config:
  deepspeed_config_file: ds.json
== file ds.json
{"zero_optimization": {"stage": 3}}
== stderr
a.yaml:2:18: error: /mixed_precision: beside deepspeed_config_file: mixed_precision
    2 | mixed_precision: bf16
      |                  ^
  hint: Accelerate refuses it: say it in the DeepSpeed file alone
== exit
3
