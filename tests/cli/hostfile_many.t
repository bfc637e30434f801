Many hosts that the line takes are all taken.
== args
llama-7b --torchrun train.sh --fast
== file train.sh
deepspeed --hostfile=hosts --include=worker-01@worker-02@worker-03@worker-04@worker-05@worker-06@worker-07@worker-08@worker-09@worker-10@worker-11@worker-12@worker-13@worker-14@worker-15@worker-16@worker-17@worker-18@worker-19@worker-20@worker-21@worker-22@worker-23@worker-24 train.py
== file hosts
worker-01 slots=8
worker-02 slots=8
worker-03 slots=8
worker-04 slots=8
worker-05 slots=8
worker-06 slots=8
worker-07 slots=8
worker-08 slots=8
worker-09 slots=8
worker-10 slots=8
worker-11 slots=8
worker-12 slots=8
worker-13 slots=8
worker-14 slots=8
worker-15 slots=8
worker-16 slots=8
worker-17 slots=8
worker-18 slots=8
worker-19 slots=8
worker-20 slots=8
worker-21 slots=8
worker-22 slots=8
worker-23 slots=8
worker-24 slots=8
worker-25 slots=8
== stdout ~
llama-7b: 6.74B parameters on 192 x a100-80gb
