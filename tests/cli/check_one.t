== args
check llama-7b --zero 3 --gpus 64 --max-memory 70GiB
== stdout ~
ok
