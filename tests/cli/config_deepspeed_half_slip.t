== args
gpt2 --deepspeed ds.json
== file ds.json
{"bf16": {"enable": true}, "fp16": {"initial_scale_power": 16, "los_scale": 0}}
== stderr ~
/bf16/enable: unknown entry 'bf16.enable'
did you mean 'bf16.enabled'?
/fp16/los_scale: unknown entry 'fp16.los_scale'
did you mean 'fp16.loss_scale'?
== exit
3
