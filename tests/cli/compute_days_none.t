No number of GPUs meets it: an answer, with what is possible.
== args
compute llama-13b --tokens 260B --days 0.5 --zero 3 --global-batch 1024
== stdout ~
  GPUs needed                  none  for 0.5 days: no number is enough
 at best
