== args
llama-7b --tp 2 --gpus 8 --sequence-parallel=false --json
== stdout ~
"sequence_parallel": false
