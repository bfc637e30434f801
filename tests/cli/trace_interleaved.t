== args
trace gpt2 --gpus 4 --pp 2 --vpp 2 --schedule interleaved --grad-accum 4
== stdout ~
gpt2: what is alive at the peak
allocations and releases in a later step
