Without target_modules PEFT refuses this one.
== args
stablelm-3b-4e1t --peft-type ia3 --fast
== stdout ~
  - vectors on q, v, down: PEFT has no list for the model (--lora-targets)
