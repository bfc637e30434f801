PEFT's "output.dense" is both of a layer's: 172,032 vectors' elements, as PEFT 0.21 counts them.
== args
bert-large --peft-type ia3 --fast
== stdout ~
bert-large: 335M parameters, 172,032 trained (0.0513%), on 1 x a100-80gb
  - vectors on k, v, o, down, PEFT's list (--lora-targets)
