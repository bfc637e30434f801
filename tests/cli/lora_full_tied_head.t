PEFT trains a copy of a head that is the words' table: it is not modelled.
== args
qwen2.5-0.5b --lora-rank 16 --lora-full-modules head --fast
== stdout ~
lora_full_modules head: PEFT trains a copy of the words' table, which is not counted
