== args
llama-7b --zero 3 --gpus 64 --check
== stdout ~
