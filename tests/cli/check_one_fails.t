== args
check llama-7b --zero 3 --gpus 64 --max-memory 1GiB
== stdout ~
FAIL
== exit
1
