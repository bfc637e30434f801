== args
check llama-7b --gpus 8 --tp 2 --sequence-parallel false --max-memory 1TiB
== stdout ~
ok   llama-7b
