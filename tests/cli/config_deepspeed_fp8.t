DeepSpeed has no section fp8, whatever files have.
== args
llama-7b --gpus 8 --deepspeed ds.json
== file ds.json
{"bf16": {"enabled": true}, "fp8": {"enabled": true, "recipe": "delayed"}}
== stdout ~
bf16-mixed; sequences
ds.json: fp8: DeepSpeed reads no such section; where the program has 8-bit products say --precision fp8-mixed
