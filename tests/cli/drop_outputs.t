== args
gpt2 --framework hf --micro-batch 4 --keep-outputs true --drop-outputs true --json
== stdout ~
"steady_allocated": 1527838720,
"peak_allocated": 7938840576,
