An estimate is of its own GPUs, their step and their time; a deadline only tells
how many would be needed.
== args
llama-7b --zero 3 --days 30
== stdout ~
llama-7b: 6.74B parameters on 1 x a100-80gb
2,048 tokens; 65,804,840 steps
  GPUs needed
for 30 days: MFU
on 1 GPU
GPUs for a deadline: of
