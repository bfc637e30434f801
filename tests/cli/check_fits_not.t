A negative answer is an answer: it is written.
== args
llama-7b --gpus 1 --gpu rtx-4090 --check
== stdout ~
== exit
1
