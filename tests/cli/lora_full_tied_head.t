PEFT trains a copy of a head that is the words' table, which stays beside it.
== args
qwen2.5-0.5b --lora-rank 16 --lora-full-modules head --fast
== stdout ~
qwen2.5-0.5b: 639M parameters, 144,932,864 trained (22.6824%), on 1 x a100-80gb
PEFT trains copies of the words' table, and unties the head (--ensure-weight-tying)
