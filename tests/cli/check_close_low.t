A rate that is short by less than one of it is told with a fraction.
== args
check llama-7b --gpus 8 --zero 3 --mfu 0.4 --min-tokens-per-s 24202 --max-peak 29709081599
== stdout
FAIL llama-7b: compute.tokens_per_s 24,201.8 < 24,202, memory.peak_allocated 29,709,081,600 B > 29,709,081,599 B
== exit
1
