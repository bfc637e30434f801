Flags of accelerate launch that its file contradicts.
== args
llama-7b --torchrun run.sh
== file run.sh
accelerate launch --config_file acc.yaml --use_deepspeed --zero_stage 2 train.py
== file acc.yaml
distributed_type: FSDP
num_processes: 8
== stderr
acc.yaml:1:19: error: /distributed_type: the line that names this file says --use_deepspeed
    1 | distributed_type: FSDP
      |                   ^
  hint: keep one: leave the flag out, or write the distributed_type that it means
== exit
3
