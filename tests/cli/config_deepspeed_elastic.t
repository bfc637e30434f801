Elastic training chooses batches itself; what is off has no effect.
== args
llama-7b --gpus 8 --deepspeed ds.json
== file ds.json
{"bf16": {"enabled": true}, "elasticity": {"enabled": true, "micro_batch_sizes": [2, 4]}}
== stdout ~
ds.json: elasticity.enabled true is not modelled: false is assumed
