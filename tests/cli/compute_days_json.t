The JSON's number is the text's.
== args
compute llama-2-7b --zero 3 --days 10 --global-batch 60 --json
== stdout ~
  "gpus_needed": 60,
  "gpus_in_nodes": 64,
  "deadline_gpus": 60,
