What the text says of a deadline, JSON says too.
== args
gpt2 --tokens 300B --gpus 8 --days 20 --fast --json
== stdout ~
"deadline_days": 20,
"gpus_needed": 
"gpus_in_nodes": 8,
"deadline_met": true,
"deadline_gpus_days": 
"deadline_gpus_mfu": 
