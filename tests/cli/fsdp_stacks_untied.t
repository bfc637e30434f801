== args
flan-t5-large --framework fsdp --gpus 4 --seq-len 512
== stdout ~
fits: 7.32 GiB of 79.15 GiB on each a100-80gb
  peak allocated              4.84
