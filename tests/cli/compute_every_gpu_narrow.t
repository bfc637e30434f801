== args
compute llama-7b --zero 3 --gpus 64 --every-gpu
== tty
stdout 80
== env
NO_COLOR=1
== stdout ~
  GPU 
