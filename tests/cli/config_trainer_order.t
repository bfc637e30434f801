== args
gpt2 --deepspeed ds.json --training-args ta.json
== file ds.json
{"bf16": {"enabled": true}, "gradient_accumulation_steps": 4}
== file ta.json
{"fp16": true, "gradient_accumulation_steps": 8}
== stderr ~
ds.json:1:22: error: /bf16/enabled: bf16.enabled true is not TrainingArguments' bf16 false (ta.json)
gradient_accumulation_steps 4 is not TrainingArguments' gradient_accumulation_steps 8 (ta.json)
== exit
3
