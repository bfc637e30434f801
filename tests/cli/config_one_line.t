Two commands on one line, and what comes after: one is read.
== args
llama-7b --training-args train.sh --fast
== file train.sh
deepspeed --num_gpus 8 a.py --per_device_train_batch_size 4; torchrun --nproc_per_node 2 b.py --bf16 True --per_device_train_batch_size 3 2>&1 | tee log && python c.py --per_device_train_batch_size 9
== stdout ~
dp 2, tp 1, pp 1, zero 0 (ddp); bf16-amp; sequences of 2,048 tokens, 3 a pass, 6 a step
  - train.sh: 2 commands start programs, the first on line 1: only the last is read, on line 1
