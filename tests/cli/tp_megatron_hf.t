Nobody asked for sequence parallelism, and Hugging Face's layers have none.
== args
llama-7b --gpus 8 --tp 2 --implementation hf --json
== stdout ~
"tp": 2
"sequence_parallel": false
