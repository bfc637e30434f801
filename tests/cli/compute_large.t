Hours of what does not fit are told, and that it does not, in 7B's 108 GB of
states on 80 GB.
== args
compute llama-7b --gpus 64
== stdout ~
time alone: the setup does not fit on these GPUs
