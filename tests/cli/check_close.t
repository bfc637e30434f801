A figure that fails is told with digits that its limit does not have.
== args
check llama-7b --gpus 8 --zero 3 --mfu 0.4 --tokens 100B --max-gpu-hours 9182 --max-days 47.82
== stdout
FAIL llama-7b: compute.gpu_hours 9,182.04 > 9,182, compute.days 47.823 > 47.820
== exit
1
