== args
trace gpt2 --gpus 8 --zero 3 --step first
== stdout ~
allocations and releases in the first step
