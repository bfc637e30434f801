A rate that is short by less than one of it is told with a fraction.
== args
check llama-7b --gpus 8 --zero 3 --mfu 0.4 --min-tokens-per-s 24202 --max-peak 29091129343
== stdout
FAIL llama-7b: compute.tokens_per_s 24,201.8 < 24,202, memory.peak_allocated 29,091,129,344 B > 29,091,129,343 B
== exit
1
