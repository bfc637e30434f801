A file of DeepSpeed's, given to a reader that knows none of its entries.
== args
llama-7b --peft ds.json
== file ds.json
{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}
== stderr
ds.json:1:1: error: these are entries of another program's file
    1 | {"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}
      | ^
  hint: give it as --deepspeed FILE
== exit
3
