The laws stand under their own heading, each by its name, in whole parameters.
== args
explain llama-2-7b --gpus 8 --zero 3
== stdout ~
scaling laws
  chinchilla: compute-optimal parameters = 6,738,415,616
  hoffmann-1: compute-optimal parameters = 6,658,265,754
