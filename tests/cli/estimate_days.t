An estimate is of its own GPUs, their step and their time; a deadline only tells
how many would be needed.
== args
llama-7b --zero 3 --days 30
== stdout ~
llama-7b: 6.74B parameters on 1 x a100-80gb
2,048 tokens; 65,804,840 steps
for 30 days;
memplan compute looks at more
on 1 GPU
