What is neither true nor false is not taken for false; adapters of rank 0 are not all of the model.
== args
llama-7b --training-args t.yaml
== file t.yaml
bf16: maybe
load_in_4bit: 4
use_peft: true
lora_r: 0
== stderr
t.yaml:1:7: error: /bf16: unknown bf16 'maybe'
    1 | bf16: maybe
      |       ^
  hint: known are true, false, auto, full
t.yaml:2:15: error: /load_in_4bit: unknown load_in_4bit '4'
    2 | load_in_4bit: 4
      |               ^
  hint: known are true, false
t.yaml:4:9: error: /lora_r: 'lora_r' of adapters is a whole number of one or more
    4 | lora_r: 0
      |         ^
  hint: such as 16; to train without adapters leave them out
== exit
3
