Two values of one thing, each with its file.
== args
llama-7b --gpus 8 --training-args a.json
== file a.json
{"bf16": true, "gradient_accumulation_steps": 8, "deepspeed": "ds.json"}
== file ds.json
{"bf16": {"enabled": "auto"}, "gradient_accumulation_steps": 4,
 "zero_optimization": {"stage": 2}}
== stderr
ds.json:1:62: error: /gradient_accumulation_steps: gradient_accumulation_steps 4 is not TrainingArguments' gradient_accumulation_steps 8 (a.json)
    1 | ..."auto"}, "gradient_accumulation_steps": 4,
      |                                            ^
  hint: write "auto" here: the Trainer refuses two values
== exit
3
