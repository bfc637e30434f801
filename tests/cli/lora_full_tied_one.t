PEFT's ensure_weight_tying: one trained copy of words and head.
== args
qwen2.5-0.5b --lora-rank 16 --lora-full-modules head --ensure-weight-tying --fast
== stdout ~
qwen2.5-0.5b: 639M parameters, 144,932,864 trained (22.6824%), on 1 x a100-80gb
