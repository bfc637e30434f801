== args
trace gpt2 --gpus 8 --zero 3
== stdout ~
gpt2: what is alive at the peak
tensor or buffer
optimizer moments
